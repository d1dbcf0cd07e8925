import { expect, it } from 'vitest'
import { brief, clock, countdown } from './time'

const at = (seconds: number) => new Date(1_700_000_000_000 + seconds * 1000).toISOString()
const now = 1_700_000_000_000

it.each([[0, '0s'], [59_999, '59s'], [60_000, '1m'], [7_200_000, '2h'], [200_000_000, '2d'], [-5, '0s']])('%i ms is %s', (time, text) =>
  expect(brief(time)).toBe(text))

it.each([[4_500, '0:05'], [245_000, '4:05'], [3_729_000, '1:02:09'], [273_600_000, '3d 4h'], [-1, '0:00']])('%i ms left is %s', (time, text) =>
  expect(clock(time)).toBe(text))

it.each([[-1, 'over'], [0, 'over'], [10, 'now'], [59, 'soon'], [61, 'calm']])('an end in %i s is %s', (seconds, urgency) =>
  expect(countdown(at(-60), at(seconds), now).urgency).toBe(urgency))

it('never ends where there is no end', () => {
  expect(countdown(at(0), null, now)).toEqual({ urgency: 'never', left: Infinity, share: 1 })
})

it('says which share of the life is left', () => {
  expect(countdown(at(-30), at(90), now).share).toBeCloseTo(0.75)
})
