/**
 * What stands between a hold and a careless yes (B128).
 *
 * Approve is inert for a moment after anything new is drawn, when the page was out of sight, and until all of the
 * view has been on the screen.
 */
import { firstGap, see, share, type Stretch } from './seen'

/** Milliseconds after each render in which no approval counts. */
export const PAUSE = 700

export class Guard {
  private seen = $state.raw<Stretch[]>([])
  private height = $state(0)
  private width = 0
  private calm = $state(false)
  private timer: ReturnType<typeof setTimeout> | undefined

  /** Something new is drawn: wait again. */
  pause(): void {
    this.calm = false
    clearTimeout(this.timer)
    this.timer = setTimeout(() => (this.calm = true), PAUSE)
  }

  /** Another hold, or other bytes, is drawn: nothing of it was seen. */
  forget(): void {
    this.seen = []
    this.height = 0
    this.pause()
  }

  /** The view was scrolled, resized or filled. */
  look(view: HTMLElement): void {
    if (document.visibilityState !== 'visible' || view.clientHeight === 0) return
    // The content, not the scroll height: that one grows and shrinks with the room around it.
    const height = view.firstElementChild?.clientHeight ?? 0
    if (height !== this.height || view.clientWidth !== this.width) {
      this.seen = []
      this.height = height
      this.width = view.clientWidth
    }
    this.seen = see(this.seen, view.scrollTop, view.scrollTop + view.clientHeight)
  }

  /** Follows the view while it is drawn: its size, and whether anybody could look at it. Returns how to stop. */
  watch(view: HTMLElement): () => void {
    const observer = new ResizeObserver(() => this.look(view))
    const back = () => this.pause()
    observer.observe(view)
    addEventListener('focus', back)
    document.addEventListener('visibilitychange', back)
    return () => {
      observer.disconnect()
      removeEventListener('focus', back)
      document.removeEventListener('visibilitychange', back)
    }
  }

  /** Where the first part begins that was not on the screen yet. */
  get gap(): number | undefined {
    return firstGap(this.seen, this.height)
  }

  get share(): number {
    return share(this.seen, this.height)
  }

  get isOpen(): boolean {
    return this.calm && this.height > 0 && this.gap === undefined
  }

  /** What is still missing, for people. */
  get says(): string {
    if (this.gap !== undefined) return `Scroll through all of it to approve: ${Math.floor(this.share * 100)}% seen`
    return this.isOpen ? '' : 'One moment'
  }
}
