/** The pending holds of this page: one store, fed by the tail. */
import * as api from './api'
import type { Hold } from './types'

/** Unknown holds that are fetched one by one; for more the whole list is read again. */
const SINGLY = 8

class Holds {
  private rows = $state.raw<ReadonlyMap<string, Hold>>(new Map())
  private wanted = new Set<string>()
  /** A hold closes once: an answer that was already on its way must not bring it back. */
  private gone = new Set<string>()
  private fetching = false
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
    if (this.fetching) return
    this.fetching = true
    setTimeout(() => void this.fetch(), 50)
  }

  private async fetch(): Promise<void> {
    const ids = [...this.wanted]
    this.wanted.clear()
    try {
      if (ids.length > SINGLY) await this.reload()
      else await Promise.all(ids.map((id) => this.fetchOne(id)))
    } catch {
      // The tail notices a lost server by itself and reads everything again.
    } finally {
      this.fetching = false
      if (this.wanted.size > 0) this.want([...this.wanted][0]!)
    }
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
