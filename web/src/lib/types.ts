/** The wire, as far as this page reads it. Field names are those of the API reference. */

export type Risk = 'low' | 'medium' | 'high' | 'critical'
export type Effect = 'allow' | 'ask' | 'deny'
export type HoldState =
  | 'pending' | 'approved' | 'denied' | 'answered' | 'released' | 'expired' | 'cancelled' | 'superseded'
export type CallState =
  | 'allowed' | 'denied' | 'pending' | 'approved' | 'answered' | 'expired' | 'cancelled' | 'lapsed' | 'executing'
  | 'succeeded' | 'failed' | 'in_doubt' | 'resolved'
export type Memory = 'none' | 'session' | 'global'
export type Role = 'agent' | 'approver' | 'operator' | 'auditor'

export type Reason = { rule: string; effect: Effect; reason?: string }
export type Quorum = { approvals: number; from: string[]; have: number }
export type Refusal = { kind: string; reason?: string; by?: string }
export type Verdict = { effect: Effect; because: Reason[]; matched: Reason[]; policy: string }

/** Who asks, as holds and calls both tell it. */
export type Path = {
  principal: string
  requester: string | null
  session: string | null
  run: string | null
  thread: string | null
  /** From the root to the one that calls. */
  agent: string[]
}

export type Decision = {
  by: string
  kind: string
  answer: 'approve' | 'deny' | 'respond'
  reason?: string | null
  channel: string
  at: string
}

/** A hold as lists carry it, secrets masked. */
export type Hold = Path & {
  id: string
  call: string
  state: HoldState
  tool: string
  server: string | null
  arguments: unknown
  masked: boolean
  digest: string
  /** Equal for calls that are the same to tool and server. */
  argument_digest: string | null
  title: string
  because: Reason[]
  risk: Risk
  approvals: Quorum[]
  human_required: boolean
  requester_excluded: boolean
  remember: Memory
  on_expired: 'refuse' | 'stop_run'
  in_run: boolean
  hint: string | null
  payload: unknown
  decisions: Decision[]
  refusal: Refusal | null
  opened_at: string
  expires_at: string | null
  /** Nobody waits for the call: approved, it runs only when the same call comes again. */
  no_caller: boolean
}

export type LineKind =
  | 'fact' | 'warning' | 'argument' | 'text' | 'masked' | 'diff_add' | 'diff_remove' | 'diff_same' | 'note'

/** One line of the core's renderer. Already escaped. */
export type Line = { kind: LineKind; indent: number; label: string; text: string }
export type Warning = { code: string; place: string; text: string }
export type Definition = { description: string; input_schema?: unknown; repeat: string }
export type Sibling = { id: string; digest: string; session: string | null; opened_at: string }

/** A hold with everything an approver needs to decide. */
export type HoldDetail = {
  hold: Hold
  /** The shown arguments as the exact canonical text. */
  arguments_text: string
  verdict: Verdict
  view: Line[]
  warnings: Warning[]
  definition: Definition | null
  /** Where arguments lead, as their tool says. */
  folders: { field: string; folder: string }[]
  superseded_by: string | null
  siblings: Sibling[]
  halted: boolean
  now: string
}

export type Covers = 'exact' | 'tool' | { fields: string[] } | { folder: string }
export type Remember = { scope: 'session' | 'global'; covers: Covers; expires_after?: string; uses?: number }

/** Arguments, payloads and responses are JSON text, so that numbers keep their spelling. */
export type NewDecision =
  | { answer: 'approve'; digest: string; arguments?: string; payload?: string; remember?: Remember }
  | { answer: 'deny'; digest: string; reason?: string }
  | { answer: 'respond'; digest: string; response: string }

export type Decided = { hold: string; state: HoldState; replayed: boolean; grant: Grant | null; released: number; call: Call }
export type GrantPreview = { rule: string; past_calls: number; counted_all: boolean; examples: { call: string; arguments: unknown }[] }

export type HoldBrief = {
  id: string
  state: HoldState
  in_run: boolean
  opened_at: string
  expires_at: string | null
  decisions: Decision[]
  refusal: Refusal | null
}

export type Outcome = { outcome: string; output?: unknown; error?: string; why?: string }

/** A call and how it stands. */
export type Call = Path & {
  id: string
  state: CallState
  tool: string
  server: string | null
  arguments: unknown
  digest: string
  verdict: Verdict
  holds: HoldBrief[]
  grant: string | null
  decided_by: string | null
  outcome: Outcome | null
  response: unknown
  resolution: { as: string; reason: string; by: string; at: string } | null
  refusal: Refusal | null
  created_at: string
  updated_at: string
}

export type Grant = {
  id: string
  rule: string
  live: boolean
  scope: 'session' | 'global'
  session: string | null
  principal: string
  agent: string | null
  tool: string
  server: string | null
  made_by: string
  hold: string | null
  made_at: string
  expires_at: string
  uses_left: number | null
  revoked_by: string | null
  revoked_at: string | null
}

/** One thing that happened. */
export type Event = {
  cursor: string
  event: string
  at: string
  call: string | null
  hold: string | null
  chain: string
  seq: number
  hash: string
  body: Record<string, unknown>
}

export type Policy = { version: string; source: string | null; rules: number; unattended: string; lints: string[] }

export type Explained = {
  effect: Effect
  because: Reason[]
  matched: Reason[]
  grant: Grant | null
  approvals: Quorum[]
  would_change: string[]
  policy: string
}

export type Timing = { median: number | null; p90: number | null; longest: number | null }
export type Tally = {
  opened: number
  approved: number
  denied: number
  answered: number
  released: number
  expired: number
  withdrawn: number
  timing: Timing
}
export type Moment = { at: string; opened: number; approved: number; denied: number; expired: number }
/** Decisions that took less than so many milliseconds, and no less than those before. */
export type Wait = { under: number | null; decided: number }
/** Prompts that people always said yes to. */
export type Saving = { rule: string; tool: string; prompts: number }
export type Insights = {
  from: string
  to: string
  complete: boolean
  holds: Tally
  over_time: Moment[]
  by_rule: [string, Tally][]
  by_tool: [string, Tally][]
  waits: Wait[]
  savings: Saving[]
}

export type Me = {
  name: string
  roles: Role[]
  groups: string[]
  csrf: string | null
  expires_at: string
  halted: boolean
  policy: string
  now: string
  /** Whether tools run with the rights of the server. */
  tools_as_server?: boolean
}

/** A tool of an MCP server, and whether its definition is the one that was accepted. */
export type PinnedTool = {
  server: string
  name: string
  state: 'accepted' | 'changed' | 'new'
  /** The digest of the definition that was found. */
  definition: string
  accepted?: unknown
  found?: unknown
  difference?: string
  since: string
}
export type Page<T> = { items: T[]; next: string | null }

/** RFC 9457. */
/** `retry_after` says in how many seconds to ask again. */
export type Problem = { status: number; code: string; title: string; detail?: string; retry_after?: number }
