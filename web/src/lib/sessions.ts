/** Sessions, told from their calls and from the server's list of those it runs. */
import type { SessionBrief, SessionState } from './transcript'
import type { Call } from './types'

export type Session = {
  key: string
  principal: string
  session: string
  agents: string[]
  calls: number
  pending: number
  refused: number
  first: string
  last: string
  /** How it stands, where the server runs it. */
  state: SessionState | null
}

/** Puts calls into their sessions, and adds those that the server runs; the one that moved last first. */
export function sessionsOf(calls: Call[], run: SessionBrief[] = []): Session[] {
  const found = new Map<string, Session>()
  for (const { principal, session, agent, state, created_at } of run) {
    const key = `${principal}/${session}`
    found.set(key, {
      key, principal, session, state, agents: [agent], calls: 0, pending: 0, refused: 0, first: created_at, last: created_at,
    })
  }
  for (const call of calls) {
    if (call.session === null) continue
    const key = `${call.principal}/${call.session}`
    const known = found.get(key)
    const agents = new Set([...(known?.agents ?? []), ...call.agent])
    found.set(key, {
      key,
      principal: call.principal,
      session: call.session,
      agents: [...agents],
      calls: (known?.calls ?? 0) + 1,
      pending: (known?.pending ?? 0) + (call.state === 'pending' ? 1 : 0),
      refused: (known?.refused ?? 0) + (call.refusal === null ? 0 : 1),
      first: least(known?.first, call.created_at),
      last: most(known?.last, call.updated_at),
      state: known?.state ?? null,
    })
  }
  return [...found.values()].sort((one, other) => (one.last < other.last ? 1 : -1))
}

/** The principal and the name of a session out of its key. A principal holds no slash. */
export function splitKey(key: string): { principal: string; session: string } {
  const at = key.indexOf('/')
  return { principal: key.slice(0, at), session: key.slice(at + 1) }
}

function least(one: string | undefined, other: string): string {
  return one === undefined || other < one ? other : one
}

function most(one: string | undefined, other: string): string {
  return one === undefined || other > one ? other : one
}
