/**
 * A word from the browser itself about new holds, while nobody looks at the page.
 *
 * It names the tool and nothing of the arguments: it may show on a locked screen. It decides nothing; a click on it leads
 * to the hold.
 */
import { escape } from './escape'
import { router } from './router.svelte'
import type { Event } from './types'

const KEY = 'alerts'
/** One alert at a time: a flood of holds must not become a flood of alerts. */
const TAG = 'countersign-holds'

class Alerts {
  /** Whether this browser knows alerts at all. */
  readonly possible = 'Notification' in globalThis
  on = $state(stored())
  /** Holds since the page was last looked at. */
  private since = 0

  constructor() {
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible') this.since = 0
    })
  }

  /** Turns alerts on or off. Call it from a click only: browsers ask the person here. */
  async toggle(): Promise<void> {
    const on = !this.on && (await Notification.requestPermission()) === 'granted'
    this.on = on
    try {
      localStorage.setItem(KEY, on ? 'on' : 'off')
    } catch {
      // A browser without storage forgets the choice, nothing more.
    }
  }

  /** Tells of a hold that just opened, if nobody looks. `known` are holds that the page has shown before. */
  hear(event: Event | undefined, known: ReadonlyMap<string, unknown>): void {
    const { hold } = event ?? {}
    if (!event || event.event !== 'hold.opened' || !hold || known.has(hold)) return
    if (!this.on || document.visibilityState === 'visible' || Notification.permission !== 'granted') return
    this.since += 1
    const several = this.since > 1
    const title = several ? `${this.since} calls wait for a decision` : 'A call waits for a decision'
    const alert = new Notification(title, { body: several ? '' : tool(event), tag: TAG })
    alert.onclick = () => {
      window.focus()
      router.go('inbox', several ? undefined : hold)
      alert.close()
    }
  }
}

function tool(event: Event): string {
  const { tool, server } = event.body
  const names = [server, tool].filter((name): name is string => typeof name === 'string')
  return escape(names.join('/')).slice(0, 100)
}

function stored(): boolean {
  try {
    return localStorage.getItem(KEY) === 'on'
  } catch {
    return false
  }
}

export const alerts = new Alerts()
