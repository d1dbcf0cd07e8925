/** A list that is read page by page. */
import { page } from './page.svelte'
import type { Page } from './types'

export class Pages<T> {
  items = $state.raw<T[]>([])
  loaded = $state(false)
  busy = $state(false)
  private next = $state<string | null>(null)
  private turn = 0

  constructor(private readonly fetch: (after: string | null) => Promise<Page<T>>) {}

  get hasMore(): boolean {
    return this.next !== null
  }

  /** Reads from the beginning. An older answer that comes late is dropped. */
  async reload(): Promise<void> {
    await this.load(null, (this.turn += 1))
  }

  async more(): Promise<void> {
    if (this.next !== null && !this.busy) await this.load(this.next, this.turn)
  }

  private async load(after: string | null, turn: number): Promise<void> {
    this.busy = true
    try {
      const got = await this.fetch(after)
      if (turn !== this.turn) return
      this.items = after === null ? got.items : [...this.items, ...got.items]
      this.next = got.next
      this.loaded = true
    } catch (error) {
      if (turn === this.turn) page.fail(error)
    } finally {
      this.busy = false
    }
  }
}
