/** What belongs to the page as a whole: who is here, the theme, short notices, the help. */
import * as api from './api'
import { escape } from './escape'
import { clock } from './clock.svelte'
import { linkIn } from './router.svelte'
import type { Me, Role } from './types'

export type Theme = 'system' | 'light' | 'dark'
export type Notice = { id: number; tone: 'good' | 'bad' | 'plain'; text: string }

/** How long a notice stays. */
const NOTICE = 6_000

class Page {
  me = $state.raw<Me | undefined>(undefined)
  signedOut = $state(false)
  /** Whether a sign-in link is being traded: until then nothing is asked for, and nothing can be shown. */
  entering = $state(linkIn(location.hash) !== undefined)
  theme = $state<Theme>(storedTheme())
  notices = $state.raw<Notice[]>([])
  help = $state(false)
  private count = 0

  /** Trades the secret of a sign-in link for a session, where there is one, and asks who is here. */
  async enter(): Promise<void> {
    const secret = linkIn(location.hash)
    if (secret !== undefined) {
      // SECURITY: out of the address, and so of the history, before anything can fail.
      history.replaceState(null, '', '/#/inbox')
      await api.signIn(secret).catch((error: unknown) => this.fail(error))
    }
    await this.load().finally(() => (this.entering = false))
  }

  async load(): Promise<void> {
    try {
      this.me = await api.me()
      this.signedOut = false
      clock.learn(this.me.now)
    } catch (error) {
      if (!(error instanceof api.ApiError) || error.problem.status !== 401) throw error
      this.me = undefined
      this.signedOut = true
    }
  }

  may(role: Role): boolean {
    return this.me?.roles.includes(role) ?? false
  }

  setTheme(theme: Theme): void {
    this.theme = theme
    try {
      localStorage.setItem('theme', theme)
    } catch {
      // A browser without storage forgets the choice, nothing more.
    }
    this.paint()
  }

  paint(): void {
    if (this.theme === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = this.theme
  }

  say(tone: Notice['tone'], text: string): void {
    const notice = { id: (this.count += 1), tone, text }
    this.notices = [...this.notices.slice(-2), notice]
    setTimeout(() => this.dismiss(notice.id), NOTICE)
  }

  dismiss(id: number): void {
    this.notices = this.notices.filter((notice) => notice.id !== id)
  }

  /** Says what went wrong, in the server's words. */
  fail(error: unknown): void {
    this.say('bad', escape(error instanceof Error ? error.message : 'Something went wrong'))
  }
}

function storedTheme(): Theme {
  try {
    const theme = localStorage.getItem('theme')
    return theme === 'light' || theme === 'dark' ? theme : 'system'
  } catch {
    return 'system'
  }
}

export const page = new Page()
