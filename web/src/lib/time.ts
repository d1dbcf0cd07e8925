/** Ages and countdowns by the store's clock, which may differ from the one of this machine. */

const UNITS: [string, number][] = [
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
]

/** A length of time in its largest unit: `42s`, `5m`, `3h`, `2d`. */
export function brief(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000))
  const [unit, length] = UNITS.find(([, length]) => seconds >= length) ?? ['s', 1]
  return `${Math.floor(seconds / length)}${unit}`
}

/** What is left of a hold's life, as a clock: `4:05`, `1:02:09`, `3d 4h`. */
export function clock(milliseconds: number): string {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000))
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3_600), Math.floor(seconds / 60)]
  if (days > 0) return `${days}d ${hours % 24}h`
  const two = (number: number) => String(number).padStart(2, '0')
  if (hours > 0) return `${hours}:${two(minutes % 60)}:${two(seconds % 60)}`
  return `${minutes}:${two(seconds % 60)}`
}

/** How urgent the end of a hold is. */
export type Urgency = 'never' | 'calm' | 'soon' | 'now' | 'over'

/** A countdown as a screen shows it. */
export type Countdown = { urgency: Urgency; left: number; share: number }

/** How much of a hold's life is left. */
export function countdown(openedAt: string, expiresAt: string | null | undefined, now: number): Countdown {
  if (expiresAt == null) return { urgency: 'never', left: Infinity, share: 1 }
  const end = Date.parse(expiresAt)
  const left = end - now
  const share = Math.min(1, Math.max(0, left / Math.max(1, end - Date.parse(openedAt))))
  const urgency = left <= 0 ? 'over' : left < 15_000 ? 'now' : left < 60_000 ? 'soon' : 'calm'
  return { urgency, left, share }
}

/** A moment for people, in their own zone. */
export function moment(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
}

/** A moment of today by the hour, another with its day. */
export function shortMoment(at: string, now: number): string {
  const date = new Date(at)
  const today = new Date(now).toDateString() === date.toDateString()
  return today
    ? date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' })
    : date.toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' })
}
