import { expect, it } from 'vitest'
import { reveal, windowOf } from './window'

it('draws a screenful out of ten thousand', () => {
  const part = windowOf(10_000, 78, 390_000, 780)
  expect(part.last - part.first).toBeLessThan(30)
  expect(part.first * 78).toBeLessThanOrEqual(390_000)
  expect(part.last * 78).toBeGreaterThanOrEqual(390_780)
  expect(part.total).toBe(780_000)
})

it.each([[0, 0], [3, 0], [10_000, 10_000_000]])('stays inside a list of %i scrolled to %i', (count, top) => {
  const part = windowOf(count, 78, top, 780)
  expect(part.first).toBeGreaterThanOrEqual(0)
  expect(part.last).toBeLessThanOrEqual(count)
  expect(part.first).toBeLessThanOrEqual(part.last)
})

it('scrolls no further than needed', () => {
  expect(reveal(0, 10, 50, 100)).toBe(0)
  expect(reveal(7, 10, 50, 100)).toBe(50)
  expect(reveal(20, 10, 50, 100)).toBe(110)
})
