/** Server-sent events, read from a stream so that the status, headers and back-off are ours. */
export type Message = { event: string; id: string; data: string }

/** Collects bytes into messages. Feed it text as it arrives. */
export class MessageReader {
  private rest = ''
  private event = ''
  private id = ''
  private data: string[] = []

  /** Takes what arrived and returns the messages that are complete by now. */
  push(text: string): Message[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/)
    this.rest = lines.pop() ?? ''
    return lines.flatMap((line) => this.line(line))
  }

  private line(line: string): Message[] {
    if (line === '') return this.flush()
    const [, field = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? []
    if (field === 'event') this.event = value
    if (field === 'id') this.id = value
    if (field === 'data') this.data.push(value)
    return []
  }

  private flush(): Message[] {
    const message = { event: this.event || 'message', id: this.id, data: this.data.join('\n') }
    const empty = this.data.length === 0 && this.event === ''
    this.event = ''
    this.data = []
    return empty ? [] : [message]
  }
}

/** How long to wait before the next try: doubling, with chance so that many pages do not return at once. */
export function backoff(failures: number, chance: number = Math.random()): number {
  const longest = Math.min(30_000, 500 * 2 ** Math.min(failures, 10))
  return Math.round(longest * (0.5 + chance / 2))
}
