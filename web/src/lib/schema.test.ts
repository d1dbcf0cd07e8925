import { expect, it } from 'vitest'
import { compact, member, parse } from './json'
import { fieldsOf, inputOf, valueOf } from './schema'

const SCHEMA = {
  type: 'object',
  required: ['amount'],
  properties: { amount: { type: 'integer' }, currency: { enum: ['EUR', 'USD'] }, urgent: { type: 'boolean' }, note: { type: 'string', description: 'Why' } },
}
const VALUE = parse('{"amount":9007199254740993,"note":"a\\nb","extra":{"x":1}}')
const fields = fieldsOf(SCHEMA, VALUE)
const field = (name: string) => fields.find((field) => field.name === name)!

it('has a field for each member of schema and arguments', () => {
  expect(fields.map(({ name, kind }) => [name, kind])).toEqual([
    ['amount', 'number'], ['currency', 'choice'], ['urgent', 'truth'], ['note', 'long'], ['extra', 'json'],
  ])
})

it('gives back what it was given', () => {
  for (const name of ['amount', 'note', 'extra']) {
    const value = member(VALUE, name)!
    expect(compact(valueOf(field(name), inputOf(field(name).kind, value))!)).toBe(compact(value))
  }
})

it('leaves out what is empty and not needed', () => {
  expect(valueOf(field('currency'), '')).toBeUndefined()
  expect(() => valueOf(field('amount'), ' ')).toThrow('needed')
  expect(() => valueOf(field('amount'), '"1"')).toThrow('number')
})

it('trusts no schema to be one', () => {
  for (const schema of [null, 5, [], { properties: 7, required: 'x' }]) expect(fieldsOf(schema, parse('{"a":1}'))).toHaveLength(1)
  expect(fieldsOf({ properties: {} }, parse('{"constructor":"x"}'))[0]?.kind).toBe('text')
})
