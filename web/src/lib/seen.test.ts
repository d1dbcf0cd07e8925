import { expect, it } from 'vitest'
import { firstGap, see, share, type Stretch } from './seen'

const seen = (...stretches: Stretch[]) => stretches.reduce<Stretch[]>((all, [from, to]) => see(all, from, to), [])

/** B128: a jump to the end does not show the middle. */
it('counts only what was on the screen', () => {
  expect(firstGap(seen([0, 100], [900, 1000]), 1000)).toBe(100)
  expect(firstGap(seen([900, 1000]), 1000)).toBe(0)
  expect(firstGap([], 1000)).toBe(0)
  expect(firstGap(seen([0, 100], [90, 500], [480, 1000]), 1000)).toBeUndefined()
  expect(firstGap(seen([500, 1000], [0, 505]), 1000)).toBeUndefined()
})

it('says how much was seen', () => {
  expect(share(seen([0, 100], [900, 1200]), 1000)).toBeCloseTo(0.2)
  expect(share([], 0)).toBe(0)
})
