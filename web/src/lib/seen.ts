/**
 * Which parts of a long view have been on the screen (B128).
 *
 * Jumping to the end shows the end, not the middle: approve waits until the seen stretches cover the whole height.
 */
export type Stretch = [from: number, to: number]

/** Pixels by which browsers round scroll positions. */
const ROUNDING = 2

/** Adds a stretch to those seen before; the result is sorted and without overlaps. */
export function see(seen: Stretch[], from: number, to: number): Stretch[] {
  const all = [...seen, [from, to] as Stretch].sort((one, other) => one[0] - other[0])
  const merged: Stretch[] = []
  for (const [start, end] of all) {
    const last = merged.at(-1)
    if (last && start <= last[1] + ROUNDING) last[1] = Math.max(last[1], end)
    else merged.push([start, end])
  }
  return merged
}

/** Where the first part begins that was not seen, or undefined when all of it was. */
export function firstGap(seen: Stretch[], height: number): number | undefined {
  const first = seen[0]
  if (!first || first[0] > ROUNDING) return 0
  return first[1] + ROUNDING >= height ? undefined : first[1]
}

/** The share that was seen, from 0 to 1. */
export function share(seen: Stretch[], height: number): number {
  if (height <= 0) return 0
  const pixels = seen.reduce((sum, [from, to]) => sum + Math.min(to, height) - Math.max(0, from), 0)
  return Math.min(1, pixels / height)
}
