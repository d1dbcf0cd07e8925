/** One live stream for the whole page. It reconnects by itself, and each time reads again what it may have missed. */
import * as api from './api'
import { holds } from './holds.svelte'
import { read } from './json'
import { page } from './page.svelte'
import { backoff, MessageReader, type Message } from './sse'
import type { Event } from './types'

export type Connection = 'connecting' | 'live' | 'waiting' | 'signed-out'

/** Hears an event; undefined after a reconnection, when anything may have happened. */
export type Listener = (event: Event | undefined) => void

/** A stream that says nothing for so long is taken for dead; the server sends a comment more often. */
const SILENCE = 45_000

const CLOSING = ['hold.released', 'hold.expired', 'hold.cancelled', 'hold.superseded']

class Tail {
  connection = $state<Connection>('connecting')
  /** When the next try is made, while waiting. */
  retryAt = $state(0)
  private listeners = new Set<Listener>()
  private cursor: string | null = null
  private failures = 0
  private abort: AbortController | undefined
  private timer: ReturnType<typeof setTimeout> | undefined

  start(): void {
    addEventListener('online', () => this.retryNow())
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.retryNow())
    void this.run()
  }

  /** Hears of every event until the returned function is called. */
  listen(listener: Listener): () => void {
    this.listeners.add(listener)
    return () => void this.listeners.delete(listener)
  }

  retryNow(): void {
    if (this.connection !== 'waiting') return
    clearTimeout(this.timer)
    void this.run()
  }

  private tell(event: Event | undefined): void {
    for (const listener of this.listeners) listener(event)
  }

  private async run(): Promise<void> {
    this.connection = 'connecting'
    this.abort = new AbortController()
    try {
      const stream = await api.events(this.cursor, this.abort.signal)
      if (page.may('approver')) await holds.reload()
      this.connection = 'live'
      this.failures = 0
      this.tell(undefined)
      await this.read(stream)
    } catch (error) {
      if (error instanceof api.ApiError && error.problem.status === 401) {
        this.connection = 'signed-out'
        return
      }
    }
    this.abort.abort()
    this.wait()
  }

  private wait(): void {
    const pause = backoff(this.failures)
    this.failures += 1
    this.connection = 'waiting'
    this.retryAt = Date.now() + pause
    this.timer = setTimeout(() => void this.run(), pause)
  }

  private async read(stream: ReadableStream<Uint8Array>): Promise<void> {
    const reader = stream.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader()
    const messages = new MessageReader()
    for (;;) {
      const silence = setTimeout(() => this.abort?.abort(), SILENCE)
      const { done, value } = await reader.read().finally(() => clearTimeout(silence))
      if (done) return
      for (const message of messages.push(value)) {
        if (message.event === 'resync') {
          this.cursor = null
          return
        }
        this.take(message)
      }
    }
  }

  private take(message: Message): void {
    if (message.id !== '') this.cursor = message.id
    const event = eventOf(message)
    if (!event) return
    this.tell(event)
    if (!event.hold) return
    if (event.event === 'hold.opened') {
      if (!holds.all.has(event.hold)) holds.want(event.hold)
    } else if (CLOSING.includes(event.event) || event.body.closes === true) holds.drop(event.hold)
    else if (event.event === 'hold.decided') holds.want(event.hold)
  }
}

/** The event a message tells of; none where it is about the stream itself. */
function eventOf(message: Message): Event | undefined {
  try {
    const event = read(message.data) as Event
    return typeof event.event === 'string' ? event : undefined
  } catch {
    return undefined
  }
}

export const tail = new Tail()
