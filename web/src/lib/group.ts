/** Holds of identical calls as one row, and what differs between the holds of a batch. */
import { escape, escapeJson } from './escape'
import { compact, leaves, of, parse } from './json'
import type { Hold, HoldDetail, Risk, Warning } from './types'

/** Identical calls that wait: the oldest leads. */
export type Group = { key: string; lead: Hold; holds: Hold[] }

/** What of the inbox to show. */
export type Filter = { text: string; risk: Risk | 'any'; tool: string; session: string }

export const NO_FILTER: Filter = { text: '', risk: 'any', tool: '', session: '' }

const RISKS: Risk[] = ['low', 'medium', 'high', 'critical']

/** Whether a hold passes the filter. The text matches any part of tool, server, path or arguments. */
export function passes(hold: Hold, filter: Filter): boolean {
  if (filter.risk !== 'any' && RISKS.indexOf(hold.risk) < RISKS.indexOf(filter.risk)) return false
  if (filter.tool !== '' && hold.tool !== filter.tool) return false
  if (filter.session !== '' && hold.session !== filter.session) return false
  if (filter.text === '') return true
  const { tool, server, principal, session, agent, id } = hold
  const words = [tool, server, principal, session, ...agent, compact(of(hold.arguments)), id]
  return words.join('\n').toLowerCase().includes(filter.text.toLowerCase())
}

/** Puts identical calls together, oldest first, so that a flood never pushes an earlier call out of sight. */
export function groupHolds(holds: Iterable<Hold>): Group[] {
  const groups = new Map<string, Group>()
  const ordered = [...holds].sort((one, other) => compare(one.opened_at, other.opened_at) || compare(one.id, other.id))
  for (const hold of ordered) {
    // SECURITY: what must be decided on other terms is never hidden in the same row.
    // Where something is masked nobody can tell whether two calls are the same, so each has a row of its own.
    const key = [hold.argument_digest ?? hold.id, hold.risk, hold.in_run, compact(of(hold.approvals.map(terms)))].join(' ')
    const group = groups.get(key)
    if (group) group.holds.push(hold)
    else groups.set(key, { key, lead: hold, holds: [hold] })
  }
  return [...groups.values()]
}

/** The other calls with the same arguments that wait: those the server names, which are not many, and all we know of. */
export function siblings({ hold, siblings: named }: HoldDetail, all: Iterable<Hold>): string[] {
  const same = ({ id, in_run, argument_digest }: Hold) =>
    id !== hold.id && !in_run && argument_digest !== null && argument_digest === hold.argument_digest
  return [...new Set([...named, ...[...all].filter(same)].map(({ id }) => id))]
}

/** Warnings about the holds of a batch, each once, with how many it concerns. */
export function sharedWarnings(details: HoldDetail[]): Warning[] {
  const found = new Map<string, { warning: Warning; count: number }>()
  for (const warning of details.flatMap(({ warnings }) => warnings)) {
    const key = `${warning.code} ${warning.place} ${warning.text}`
    found.set(key, { warning, count: (found.get(key)?.count ?? 0) + 1 })
  }
  return [...found.values()].map(({ warning, count }) =>
    count === 1 ? warning : { ...warning, text: `${warning.text} (${count} calls)` },
  )
}

/** One thing about the holds of a batch. Name and values are safe to show. */
export type Field = { name: string; values: (string | undefined)[] }

/** Splits everything about the holds of a batch into what they share and what differs. */
export function compareHolds(holds: HoldDetail[]): { shared: Field[]; differing: Field[] } {
  const rows = holds.map(facts)
  const names = new Set(rows.flatMap((row) => [...row.keys()]))
  const fields = [...names].map((name) => ({ name, values: rows.map((row) => row.get(name)) }))
  const isShared = ({ values }: Field) => values.every((value) => value === values[0])
  return { shared: fields.filter(isShared), differing: fields.filter((field) => !isShared(field)) }
}

/** Calls that have the same in every place where calls of the batch differ. */
export type Row = { values: (string | undefined)[]; count: number }

/** What differs, one row for all that differ in nothing from each other. A thousand identical calls need one look. */
export function rowsOf(differing: Field[], count: number): Row[] {
  const rows = new Map<string, Row>()
  for (let at = 0; at < count; at += 1) {
    const values = differing.map((field) => field.values[at])
    // Whatever stands in a value, another one of it makes another key.
    const key = JSON.stringify(values.map((value) => value ?? null))
    const row = rows.get(key)
    if (row) row.count += 1
    else rows.set(key, { values, count: 1 })
  }
  return [...rows.values()]
}

function facts({ hold, arguments_text }: HoldDetail): Map<string, string> {
  const known: [string, string | null][] = [
    ['tool', hold.tool],
    ['server', hold.server],
    ['risk', hold.risk],
    ['principal', hold.principal],
    ['requester', hold.requester],
    ['session', hold.session],
    ['run', hold.run],
    ['thread', hold.thread],
    ['agents', hold.agent.join(' › ')],
    ['rules', hold.because.map(({ rule }) => rule).join(', ')],
    ['the tool or agent says', hold.hint],
  ]
  const json: [string, string][] = [
    ...leaves(parse(arguments_text)).map(([place, value]): [string, string] => [`arguments${place}`, value]),
    ...(hold.payload == null ? [] : [['given along', compact(of(hold.payload))] as [string, string]]),
  ]
  const given = known.filter((fact): fact is [string, string] => fact[1] !== null && fact[1] !== '')
  return new Map([
    ...given.map(([name, value]) => [name, escape(value)] as const),
    ...json.map(([name, value]) => [escape(name), escapeJson(value)] as const),
  ])
}

function terms({ approvals, from }: { approvals: number; from: string[] }): unknown {
  return [approvals, from]
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
