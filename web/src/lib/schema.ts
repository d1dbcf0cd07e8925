/** A JSON Schema as a form: one field for each member that a plain input can edit. */
import { compact, member, parse, type Tree } from './json'

/** How a member is edited. `json` is for what no plain input can say. */
export type FieldKind = 'text' | 'long' | 'number' | 'truth' | 'choice' | 'json'

export type FormField = {
  name: string
  kind: FieldKind
  required: boolean
  description: string
  choices: string[]
}

/** Text longer than this, or with line breaks, gets a large field. */
const SHORT = 80

/** The fields for an object: what the schema needs first, then what else it knows, then whatever else the object holds. */
export function fieldsOf(schema: unknown, value: Tree): FormField[] {
  const properties = record(record(schema).properties)
  const required = record(schema).required
  const names = value.kind === 'map' ? value.members.map(([name]) => name) : []
  const all = new Set([...Object.keys(properties), ...names])
  const fields = [...all].map((name): FormField => {
    const property = record(Object.hasOwn(properties, name) ? properties[name] : undefined)
    const choices = Array.isArray(property.enum) ? property.enum.map((choice) => JSON.stringify(choice)) : []
    return {
      name,
      kind: kindOf(property, choices, member(value, name)),
      required: Array.isArray(required) && required.includes(name),
      description: typeof property.description === 'string' ? property.description : '',
      choices,
    }
  })
  return fields.sort((one, other) => Number(other.required) - Number(one.required))
}

/** What the input for a value shows. */
export function inputOf(kind: FieldKind, value: Tree | undefined): string {
  if (value === undefined) return ''
  if ((kind === 'text' || kind === 'long') && value.kind === 'text') return value.text
  return compact(value)
}

/** The value that an input says; undefined where it is empty and the member is not needed. */
export function valueOf(field: FormField, input: string): Tree | undefined {
  if (field.kind === 'text' || field.kind === 'long') {
    return input === '' && !field.required ? undefined : { kind: 'text', text: input }
  }
  if (input.trim() === '') {
    if (field.required) throw new Error(`${field.name} is needed`)
    return undefined
  }
  const value = parse(input)
  if (field.kind === 'number' && !/^-?\d/.test(compact(value))) throw new Error(`${field.name} must be a number`)
  return value
}

function kindOf(property: Record<string, unknown>, choices: string[], value: Tree | undefined): FieldKind {
  if (choices.length > 0) return 'choice'
  const type = typeof property.type === 'string' ? property.type : typeOf(value)
  if (type === 'boolean') return 'truth'
  if (type === 'number' || type === 'integer') return 'number'
  if (type !== 'string' || (value !== undefined && value.kind !== 'text')) return 'json'
  return value?.kind === 'text' && (value.text.length > SHORT || value.text.includes('\n')) ? 'long' : 'text'
}

function typeOf(value: Tree | undefined): string {
  if (value === undefined || value.kind === 'list' || value.kind === 'map') return 'json'
  if (value.kind === 'text') return 'string'
  if (value.word === 'true' || value.word === 'false') return 'boolean'
  return value.word === 'null' ? 'json' : 'number'
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
