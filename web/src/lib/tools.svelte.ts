/** The pinned tools of MCP servers, where the server keeps any. */
import * as api from './api'
import { page } from './page.svelte'
import type { PinnedTool } from './types'

const ORDER = ['changed', 'new', 'accepted']

class Tools {
  all = $state.raw<PinnedTool[]>([])
  /** Whether this server knows of pinned tools at all, and shows them to us. */
  known = $state(false)

  /** How many wait for somebody to look at them. */
  get changed(): number {
    return this.all.filter(({ state }) => state !== 'accepted').length
  }

  /** Reads all of them; what needs a look comes first. A server without them has none. */
  async look(): Promise<void> {
    if (!page.may('approver') && !page.may('operator')) return
    try {
      const all: PinnedTool[] = []
      let after: string | null = null
      do {
        const got = await api.tools(after)
        all.push(...got.items)
        after = got.next
      } while (after !== null)
      this.all = all.sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state))
      this.known = true
    } catch (error) {
      const absent = error instanceof api.ApiError && [403, 404].includes(error.problem.status)
      this.known = !absent && this.known
      if (!absent) page.fail(error)
    }
  }
}

export const tools = new Tools()
