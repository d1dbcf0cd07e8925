/** The part of a long list that is on the screen. */
export type Window = { first: number; last: number; before: number; total: number }

/** Rows drawn beyond each edge, so that a quick scroll shows no gap. */
const SPARE = 6

/** Which rows of equal height to draw: from `first` up to but without `last`, `before` pixels down. */
export function windowOf(count: number, height: number, top: number, view: number): Window {
  const first = clamp(Math.floor(top / height) - SPARE, 0, count)
  const last = clamp(Math.ceil((top + view) / height) + SPARE, first, count)
  return { first, last, before: first * height, total: count * height }
}

/** Where to scroll so that a row is in view; the present place where it already is. */
export function reveal(index: number, height: number, top: number, view: number): number {
  const start = index * height
  if (start < top) return start
  if (start + height > top + view) return start + height - view
  return top
}

function clamp(number: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, number))
}
