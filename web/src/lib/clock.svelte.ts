/** The store's time, ticking once a second for everything on the page that counts. */
class Clock {
  private offset = 0
  now = $state(Date.now())

  constructor() {
    setInterval(() => this.tick(), 1000)
    document.addEventListener('visibilitychange', () => this.tick())
  }

  /** Learns the store's time from an answer of the server. */
  learn(now: string | undefined): void {
    const time = now === undefined ? NaN : Date.parse(now)
    if (Number.isNaN(time)) return
    this.offset = time - Date.now()
    this.tick()
  }

  private tick(): void {
    this.now = Date.now() + this.offset
  }
}

export const clock = new Clock()
