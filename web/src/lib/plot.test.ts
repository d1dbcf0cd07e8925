import { expect, it } from 'vitest'
import { approvalRate, lengthOf, waitLabels } from './plot'

it('labels each stretch of time by its end', () => {
  const waits = [5_000, 60_000, 3_600_000, null].map((under) => ({ under, decided: 0 }))
  expect(waitLabels(waits)).toEqual(['under 5 s', 'to 1 min', 'to 1 h', 'longer'])
})

it('says how long something took in its own unit', () => {
  expect([840, 4_200, 180_000, 5_400_000, null].map(lengthOf)).toEqual(['840 ms', '4.2 s', '3 min', '1.5 h', '–'])
})

it('has no rate where nobody decided', () => {
  expect(approvalRate({ approved: 3, denied: 1 })).toBe(0.75)
  expect(approvalRate({ approved: 0, denied: 0 })).toBeUndefined()
})
