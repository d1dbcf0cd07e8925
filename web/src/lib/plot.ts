/** Geometry of the plots, without any library. */
import type { Moment, Tally, Wait } from './types'

/** A piece of a stacked bar, in the units of its plot. */
export type Bar = { x: number; y: number; width: number; height: number; kind: 'approved' | 'denied' | 'expired' | 'other' }

/** What the highest bar counts. */
export function highest(moments: Moment[]): number {
  return Math.max(1, ...moments.map(({ opened, approved, denied, expired }) => Math.max(opened, approved + denied + expired)))
}

/** Bars over time, stacked by how the holds ended. */
export function stack(moments: Moment[], width: number, height: number): Bar[] {
  const most = highest(moments)
  const step = width / Math.max(1, moments.length)
  return moments.flatMap((moment, index) => {
    const rest = Math.max(0, moment.opened - moment.approved - moment.denied - moment.expired)
    const parts: [Bar['kind'], number][] = [
      ['approved', moment.approved],
      ['denied', moment.denied],
      ['expired', moment.expired],
      ['other', rest],
    ]
    let y = height
    return parts.flatMap(([kind, count]) => {
      const tall = (count / most) * height
      y -= tall
      return count > 0 ? [{ x: index * step + step * 0.12, y, width: step * 0.76, height: tall, kind }] : []
    })
  })
}

/** How many of the decided holds were approved, from 0 to 1; none decided gives undefined. */
export function approvalRate({ approved, denied }: Pick<Tally, 'approved' | 'denied'>): number | undefined {
  return approved + denied > 0 ? approved / (approved + denied) : undefined
}

/** What to write below the stretches of the time that people take: `under 5 s`, `to 15 s`, … `longer`. */
export function waitLabels(waits: Wait[]): string[] {
  const brief = (milliseconds: number) => lengthOf(milliseconds).replace(/\.0 /, ' ')
  return waits.map(({ under }, at) => (under === null ? 'longer' : `${at === 0 ? 'under' : 'to'} ${brief(under)}`))
}

/** A length of time for people: `840 ms`, `4.2 s`, `3 min`. */
export function lengthOf(milliseconds: number | null): string {
  if (milliseconds === null) return '–'
  if (milliseconds < 1000) return `${milliseconds} ms`
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`
  if (milliseconds < 3_600_000) return `${Math.round(milliseconds / 60_000)} min`
  return `${(milliseconds / 3_600_000).toFixed(1)} h`
}
