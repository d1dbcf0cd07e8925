/** The one place that talks to the server. */
import { compact, of, parse, read, type Tree } from './json'
import type {
  Call, Decided, Event, Explained, Grant, GrantPreview, Hold, HoldDetail, Insights, Me, NewDecision, Page, PinnedTool,
  Policy, Problem, Remember,
} from './types'
import type { SessionBrief } from './transcript'

/** A refusal of the server, with its stable code. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail ?? problem.title)
  }

  get code(): string {
    return this.problem.code
  }
}

/** Rows a page of a list asks for. */
const PAGE = 500

let csrf = ''

export async function me(): Promise<Me> {
  const who = await get<Me>('/v1/me')
  csrf = who.csrf ?? ''
  return who
}

export const signOut = () => post<unknown>('/v1/sign-out', {})
/** Whoever leaves the page meanwhile is signed in all the same: a link works once. */
export const signIn = (link: string) => send<unknown>('POST', '/v1/sign-in', JSON.stringify({ link }), { keepalive: true })

export const holds = (after: string | null) =>
  get<Page<Hold>>('/v1/holds', { state: 'pending', limit: PAGE, after })
export const hold = (id: string) => get<HoldDetail>(`/v1/holds/${encodeURIComponent(id)}`)
export const previewGrant = (id: string, remember: Remember) =>
  post<GrantPreview>(`/v1/holds/${encodeURIComponent(id)}/preview-grant`, { remember })

/** Decides a hold. Arguments and answers are sent in the very spelling that was shown. */
export function decide(id: string, decision: NewDecision): Promise<Decided> {
  const raw = new Set(['arguments', 'payload', 'response'])
  const members = Object.entries(decision)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]): [string, Tree] => [key, raw.has(key) ? parse(String(value)) : of(value)])
  return send<Decided>('POST', `/v1/holds/${encodeURIComponent(id)}/decisions`, compact({ kind: 'map', members }))
}

export type CallQuery = { state?: string; session?: string; q?: string; order?: 'newest'; limit?: number }
export const calls = (query: CallQuery, after: string | null) => get<Page<Call>>('/v1/calls', { ...query, after })
export const call = (id: string) => get<Call>(`/v1/calls/${encodeURIComponent(id)}`)
export const resolve = (id: string, as: string, reason: string) =>
  post<Call>(`/v1/calls/${encodeURIComponent(id)}/resolve`, { as, reason })

export const grants = (all: boolean, after: string | null) =>
  get<Page<Grant>>('/v1/grants', { after, limit: PAGE, all: all ? 'true' : null })
export const revoke = (id: string) => send<unknown>('DELETE', `/v1/grants/${encodeURIComponent(id)}`, '{}')

export const policy = () => get<Policy>('/v1/policy')
export function explain(tool: string, server: string, args: string): Promise<Explained> {
  const named: [string, Tree][] = [['tool', of(tool)], ...(server ? [['server', of(server)] as [string, Tree]] : [])]
  return send<Explained>('POST', '/v1/policy/explain', compact({ kind: 'map', members: [...named, ['arguments', parse(args)]] }))
}


/** A page of the log as text, since hashes are over the very bytes of each body. */
export const auditText = (after: string | null) => fetchText('GET', address('/v1/audit', { after, limit: PAGE }))
export const keys = async () => (await get<{ keys: { key: string }[] }>('/v1/keys')).keys.map(({ key }) => key)
export const sessionEvents = (session: string, after: string | null) =>
  get<Page<Event>>('/v1/audit', { session, after, limit: PAGE })
export const insights = (hours: number) => get<Insights>('/v1/insights', { hours })
export const halt = (reason: string) => post<unknown>('/v1/halt', { reason })
export const resume = () => post<unknown>('/v1/resume', {})

export const tools = (after: string | null) => get<Page<PinnedTool>>('/v1/tools', { after, limit: PAGE })
/** Accepts the very definition that was shown. */
export const acceptTool = ({ server, name, definition }: PinnedTool) =>
  post<unknown>('/v1/tools/accept', { server, tool: name, definition })

/** Sessions that the server runs. */
export const sessions = (after: string | null) => get<Page<SessionBrief>>('/v1/sessions', { after, limit: PAGE })

/** Opens the live stream. */
export const events = (after: string | null, signal: AbortSignal) => stream(address('/v1/events', { after }), signal)

/** Opens the stream of a session that the server runs. */
export const talk = (principal: string, session: string, after: string | null, signal: AbortSignal) =>
  stream(address(`/v1/sessions/${encodeURIComponent(session)}/events`, { principal, after }), signal)

async function stream(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
  const headers = { accept: 'text/event-stream' }
  const answer = await fetch(path, { headers, signal, credentials: 'same-origin', cache: 'no-store' })
  if (!answer.ok || !answer.body) throw new ApiError(await problemOf(answer))
  return answer.body
}

type Query = Record<string, string | number | null | undefined>

function get<T>(path: string, query: Query = {}): Promise<T> {
  return send<T>('GET', address(path, query))
}

function post<T>(path: string, body: unknown): Promise<T> {
  return send<T>('POST', path, JSON.stringify(body))
}

async function send<T>(method: string, path: string, body?: string, settings?: RequestInit): Promise<T> {
  const text = await fetchText(method, path, body, settings)
  return (text === '' ? {} : read(text)) as T
}

async function fetchText(method: string, path: string, body?: string, settings?: RequestInit): Promise<string> {
  const headers: Record<string, string> = { accept: 'application/json' }
  if (method !== 'GET') Object.assign(headers, { 'content-type': 'application/json', 'x-countersign-csrf': csrf })
  const answer = await fetch(path, { ...settings, method, headers, body, credentials: 'same-origin', cache: 'no-store' })
  if (!answer.ok) throw new ApiError(await problemOf(answer))
  return answer.text()
}

function address(path: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== '')
  const search = new URLSearchParams(given.map(([key, value]) => [key, String(value)]))
  return given.length > 0 ? `${path}?${search}` : path
}

async function problemOf(answer: Response): Promise<Problem> {
  const fallback = { status: answer.status, code: `http_${answer.status}`, title: answer.statusText || 'The server refused' }
  try {
    return { ...fallback, ...((await answer.json()) as Partial<Problem>) }
  } catch {
    return fallback
  }
}
