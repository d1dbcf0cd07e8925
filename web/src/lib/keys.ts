/** The keyboard, in one table. */
export type Command =
  | 'next' | 'previous' | 'open' | 'approve' | 'deny' | 'edit' | 'answer' | 'remember' | 'select' | 'search'
  | 'page-down' | 'page-up' | 'line-down' | 'line-up' | 'help' | 'close'
  | 'go-inbox' | 'go-sessions' | 'go-history' | 'go-grants' | 'go-doubts' | 'go-policy' | 'go-tools' | 'go-audit' | 'go-insights'

/** A key and what it does, as the help shows it. */
export type Binding = { keys: string[]; command: Command; says: string }

export const BINDINGS: Binding[] = [
  { keys: ['j'], command: 'next', says: 'Next hold' },
  { keys: ['k'], command: 'previous', says: 'Previous hold' },
  { keys: ['o'], command: 'open', says: 'Open the hold' },
  { keys: ['a'], command: 'approve', says: 'Approve' },
  { keys: ['d'], command: 'deny', says: 'Deny, with a reason' },
  { keys: ['e'], command: 'edit', says: 'Edit the arguments' },
  { keys: ['r'], command: 'remember', says: 'Approve and remember' },
  { keys: ['i'], command: 'answer', says: 'Answer instead of running it' },
  { keys: ['x'], command: 'select', says: 'Select for a batch' },
  { keys: ['/'], command: 'search', says: 'Search' },
  { keys: ['ArrowDown'], command: 'line-down', says: 'Scroll the hold down' },
  { keys: ['ArrowUp'], command: 'line-up', says: 'Scroll the hold up' },
  { keys: ['PageDown'], command: 'page-down', says: 'Scroll a page down' },
  { keys: ['PageUp'], command: 'page-up', says: 'Scroll a page up' },
  { keys: ['Escape'], command: 'close', says: 'Close or go back' },
  { keys: ['?'], command: 'help', says: 'This list' },
  { keys: ['g', 'i'], command: 'go-inbox', says: 'Go to the inbox' },
  { keys: ['g', 's'], command: 'go-sessions', says: 'Go to sessions' },
  { keys: ['g', 'h'], command: 'go-history', says: 'Go to history' },
  { keys: ['g', 'g'], command: 'go-grants', says: 'Go to grants' },
  { keys: ['g', 'd'], command: 'go-doubts', says: 'Go to doubts' },
  { keys: ['g', 'p'], command: 'go-policy', says: 'Go to the policy' },
  { keys: ['g', 't'], command: 'go-tools', says: 'Go to the tools of MCP servers' },
  { keys: ['g', 'a'], command: 'go-audit', says: 'Go to the audit' },
  { keys: ['g', 'n'], command: 'go-insights', says: 'Go to insights' },
]

/** What of a key press counts. */
export type Press = { key: string; ctrlKey: boolean; metaKey: boolean; altKey: boolean; repeat: boolean; at: number }

/** Milliseconds in which the second key of a pair must follow. */
const PAIR = 1000

/** Reads presses into commands. A held key repeats only what moves, so that it never decides twice. */
export class Keyboard {
  private lead: { key: string; at: number } | undefined

  /** The command that a press completes, if any. */
  read(press: Press): Command | undefined {
    if (press.ctrlKey || press.metaKey || press.altKey) return undefined
    const lead = this.lead && press.at - this.lead.at <= PAIR ? this.lead.key : undefined
    this.lead = undefined
    const pair = BINDINGS.find(({ keys }) => keys.length === 2 && keys[0] === lead && keys[1] === press.key)
    if (pair) return pair.command
    // SECURITY: the second key of a broken pair is dropped, lest "g a" typed slowly or wrongly approves.
    if (lead !== undefined) return undefined
    if (press.key === 'g') {
      this.lead = { key: press.key, at: press.at }
      return undefined
    }
    const found = BINDINGS.find(({ keys }) => keys.length === 1 && keys[0] === press.key)?.command
    return press.repeat && !moves(found) ? undefined : found
  }
}

/** Whether a key press belongs to a field the person types into. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName)
}

function moves(command: Command | undefined): boolean {
  return command !== undefined && ['next', 'previous', 'page-down', 'page-up', 'line-down', 'line-up'].includes(command)
}
