/** The transcript of a session that the server runs, put together from its stream. */
import type { Call, Hold, HoldBrief } from './types'

export type SessionState = 'idle' | 'running' | 'waiting' | 'failed'

/** A session as the server lists it. */
export type SessionBrief = {
  session: string
  principal: string
  agent: string
  requester: string | null
  state: SessionState
  created_at: string
}

export type SessionStatus = {
  state: SessionState
  holds: string[]
  client_calls: { call: string; tool: string; thread: string | null; agents: string[] }[]
  queued: number
  error: string | null
}

type Place = { thread: string; agents: string[]; entry: number }

/** One thing to show. `depth` is how many agents stand above the one it belongs to. */
export type Item = { key: string; depth: number; agent: string } & (
  | { kind: 'message'; text: string }
  | { kind: 'said'; text: string; unfinished: boolean }
  | { kind: 'call'; call: Call; hold: string | null; result: string | null }
  | { kind: 'handed'; to: string }
  | { kind: 'stopped'; why: string }
)

type Result = { call: string | null; text: string }

/** Takes the events of a session's stream and keeps what there is to show, in order. */
export class Transcript {
  items: Item[] = []
  status: SessionStatus | null = null
  private speaking = new Map<string, Place & { text: string }>()

  /** What models are saying right now. */
  get unfinished(): Item[] {
    return [...this.speaking.values()].map((said) => ({ ...where(said), key: `live ${said.thread}`, kind: 'said', text: said.text, unfinished: true }))
  }

  /** Takes one event. Those of a newer server are passed over. */
  take(event: string, data: unknown): void {
    if (event === 'state') this.status = data as SessionStatus
    else if (event === 'text') this.text(data as Place & { start: boolean; text: string })
    else if (event === 'call') this.called(data as Call)
    else if (event === 'ended') this.change((data as Call).id, { call: data as Call })
    else if (event === 'hold') this.change((data as Hold).call, { hold: (data as Hold).id })
    else if (event === 'hold_closed') this.closed(data as { call: string; hold: HoldBrief })
    else if (event === 'message') this.add(data as Place & { text: string }, (said) => ({ kind: 'message', text: said.text }))
    else if (event === 'said' || event === 'done') this.said(data as Place & { text: string })
    else if (event === 'results') this.results(data as Place & { results: Result[]; handed_to: string | null })
    else if (event === 'stopped') this.add(data as Place & { why: string; detail: string | null }, ({ why, detail }) => ({ kind: 'stopped', why: why.replaceAll('_', ' ') + (detail === null ? '' : `: ${detail}`) }))
  }

  private text(piece: Place & { start: boolean; text: string }): void {
    const before = this.speaking.get(piece.thread)
    const same = before?.entry === piece.entry && !piece.start
    this.speaking.set(piece.thread, { ...piece, text: (same ? before.text : '') + piece.text })
  }

  private said(said: Place & { text: string }): void {
    this.speaking.delete(said.thread)
    if (said.text !== '') this.add(said, ({ text }) => ({ kind: 'said', text, unfinished: false }))
  }

  private called(call: Call): void {
    const hold = call.holds.find(({ state }) => state === 'pending')?.id ?? null
    const depth = Math.max(0, call.agent.length - 1)
    this.items.push({ key: call.id, depth, agent: call.agent.at(-1) ?? '', kind: 'call', call, hold, result: null })
  }

  private closed({ call, hold }: { call: string; hold: HoldBrief }): void {
    const found = this.find(call)
    if (found?.hold === hold.id) this.change(call, { hold: null })
  }

  private results(entry: Place & { results: Result[]; handed_to: string | null }): void {
    for (const { call, text } of entry.results) if (call !== null) this.change(call, { result: text })
    if (entry.handed_to !== null) this.add(entry, ({ handed_to }) => ({ kind: 'handed', to: handed_to ?? '' }))
  }

  private find(id: string): Extract<Item, { kind: 'call' }> | undefined {
    const found = this.items.findLast(({ key }) => key === id)
    return found?.kind === 'call' ? found : undefined
  }

  /** Replaces what is shown of a call, so that who shows it sees another thing. */
  private change(id: string, change: Partial<Extract<Item, { kind: 'call' }>>): void {
    const at = this.items.findLastIndex(({ key }) => key === id)
    const item = this.items[at]
    if (item?.kind === 'call') this.items[at] = { ...item, ...change }
  }

  private add<T extends Place>(entry: T, what: (entry: T) => { kind: 'message' | 'said' | 'handed' | 'stopped' } & Record<string, unknown>): void {
    this.items.push({ ...where(entry), key: `${entry.thread} ${entry.entry}`, ...what(entry) } as Item)
  }
}

function where({ agents }: Place): { depth: number; agent: string } {
  return { depth: Math.max(0, agents.length - 1), agent: agents.at(-1) ?? '' }
}
