/** The live transcript of one session. It reconnects by itself and goes on where it was. */
import * as api from './api'
import { read } from './json'
import { backoff, MessageReader } from './sse'
import { Transcript, type Item, type SessionStatus } from './transcript'

/** A stream that says nothing for so long is taken for dead; the server sends a comment more often. */
const SILENCE = 45_000

/** Whether the session is one that the server runs. */
export type Kind = 'unknown' | 'ours' | 'outside'

export class Talk {
  kind = $state<Kind>('unknown')
  items = $state.raw<Item[]>([])
  unfinished = $state.raw<Item[]>([])
  status = $state.raw<SessionStatus | null>(null)
  private transcript = new Transcript()
  private cursor: string | null = null
  private failures = 0
  private abort = new AbortController()
  private timer: ReturnType<typeof setTimeout> | undefined
  private over = false

  constructor(
    private readonly principal: string,
    private readonly session: string,
  ) {}

  /** Follows the session until the returned function is called. */
  start(): () => void {
    void this.run()
    return () => {
      this.over = true
      clearTimeout(this.timer)
      this.abort.abort()
    }
  }

  private async run(): Promise<void> {
    this.abort = new AbortController()
    try {
      const stream = await api.talk(this.principal, this.session, this.cursor, this.abort.signal)
      this.kind = 'ours'
      this.failures = 0
      await this.read(stream)
    } catch (error) {
      const status = error instanceof api.ApiError ? error.problem.status : 0
      if (status === 404) this.kind = 'outside'
      if (status === 404 || status === 401) return
    }
    if (this.over) return
    this.abort.abort()
    this.timer = setTimeout(() => void this.run(), backoff(this.failures))
    this.failures += 1
  }

  private async read(stream: ReadableStream<Uint8Array>): Promise<void> {
    const reader = stream.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader()
    const messages = new MessageReader()
    for (;;) {
      const silence = setTimeout(() => this.abort.abort(), SILENCE)
      const { done, value } = await reader.read().finally(() => clearTimeout(silence))
      if (done) return
      for (const { event, id, data } of messages.push(value)) {
        if (event === 'resync') return this.begin()
        if (id !== '') this.cursor = id
        this.transcript.take(event, read(data))
      }
      this.show()
    }
  }

  /** Forgets everything: the place we had is none any more. */
  private begin(): void {
    this.cursor = null
    this.transcript = new Transcript()
  }

  private show(): void {
    this.items = [...this.transcript.items]
    this.unfinished = this.transcript.unfinished
    this.status = this.transcript.status
  }
}
