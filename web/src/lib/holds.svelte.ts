/** The pending holds of this page: one store, fed by the tail. */
import * as api from './api'
import type { Hold } from './types'

/** Unknown holds that are fetched one by one; for more the whole list is read again. */
const SINGLY = 8
/** Milliseconds in which events are gathered before anything is fetched. */
const SOON = 50
/** Milliseconds between two readings of the whole list, and before another try after a failure. */
const LATER = 1000

class Holds {
  private rows = $state.raw<ReadonlyMap<string, Hold>>(new Map())
  private wanted = new Set<string>()
  /** A hold closes once: an answer that was already on its way must not bring it back. */
  private gone = new Set<string>()
  private timer: ReturnType<typeof setTimeout> | undefined
  private pause = SOON
  loaded = $state(false)

  get all(): ReadonlyMap<string, Hold> {
    return this.rows
  }

  /** Reads everything again, as after a lost connection. */
  async reload(): Promise<void> {
    const rows = new Map<string, Hold>()
    let after: string | null = null
    do {
      const page = await api.holds(after)
      for (const row of page.items) if (!this.gone.has(row.id)) rows.set(row.id, row)
      after = page.next
    } while (after !== null)
    this.rows = rows
    this.loaded = true
  }

  /** Takes a row as the server has it now. */
  put(row: Hold): void {
    if (row.state !== 'pending' || this.gone.has(row.id)) return this.drop(row.id)
    this.rows = new Map(this.rows).set(row.id, row)
  }

  /** Forgets a hold that is no longer pending. */
  drop(id: string): void {
    this.gone.add(id)
    if (!this.rows.has(id)) return
    const rows = new Map(this.rows)
    rows.delete(id)
    this.rows = rows
  }

  /** Fetches a hold that an event spoke of, together with others that arrive in the same breath. */
  want(id: string): void {
    this.wanted.add(id)
    this.timer ??= setTimeout(() => void this.fetch(), this.pause)
  }

  private async fetch(): Promise<void> {
    const ids = [...this.wanted]
    const began = performance.now()
    this.wanted.clear()
    try {
      if (ids.length > SINGLY) await this.reload()
      else await Promise.all(ids.map((id) => this.fetchOne(id)))
      // A flood of holds must not become a flood of requests: most of the time goes by without any.
      this.pause = ids.length > SINGLY ? LATER + 4 * (performance.now() - began) : SOON
    } catch {
      for (const id of ids) this.wanted.add(id)
      this.pause = 2 * LATER
    }
    this.timer = this.wanted.size > 0 ? setTimeout(() => void this.fetch(), this.pause) : undefined
  }

  private async fetchOne(id: string): Promise<void> {
    try {
      this.put((await api.hold(id)).hold)
    } catch (error) {
      if (error instanceof api.ApiError && error.problem.status === 404) this.drop(id)
      else throw error
    }
  }
}

export const holds = new Holds()
