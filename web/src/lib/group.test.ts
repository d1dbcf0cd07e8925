import { describe, expect, it } from 'vitest'
import { compareHolds, groupHolds, NO_FILTER, passes, rowsOf, sharedWarnings, siblings } from './group'
import type { Hold, HoldDetail } from './types'

const BASE: Hold = {
  id: 'h1', call: 'c1', state: 'pending', tool: 'pay', server: null, arguments: { to: 'Bo' }, masked: false, digest: 'd1',
  argument_digest: 'a1', title: 'pay', principal: 'bot', requester: null, session: 's1', run: null, thread: null, agent: ['banker'],
  because: [{ rule: 'r1', effect: 'ask' }], risk: 'low', approvals: [{ approvals: 1, from: [], have: 0 }], human_required: false,
  requester_excluded: false, remember: 'global', on_expired: 'refuse', in_run: false, hint: null, payload: null, decisions: [],
  refusal: null, opened_at: '2026-01-01T00:00:01Z', expires_at: null, no_caller: false,
}
const hold = (more: Partial<Hold>): Hold => ({ ...BASE, ...more })
const detail = (more: Partial<Hold>, arguments_text: string): HoldDetail => ({
  hold: hold(more), arguments_text, verdict: { effect: 'ask', because: [], matched: [], policy: '' }, view: [],
  warnings: [{ code: 'large', place: '', text: 'large' }], definition: null, superseded_by: null, folders: [], siblings: [], halted: false, now: '',
})

describe('groups', () => {
  it('puts identical calls together, oldest first', () => {
    const groups = groupHolds([
      hold({ id: 'h3', opened_at: '2026-01-01T00:00:03Z' }),
      hold({ id: 'h2', argument_digest: 'a2', opened_at: '2026-01-01T00:00:02Z' }),
      hold({ id: 'h1' }),
    ])
    expect(groups.map(({ holds }) => holds.map(({ id }) => id))).toEqual([['h1', 'h3'], ['h2']])
  })

  it('never hides other terms in the same row', () => {
    const others = [{ risk: 'high' as const }, { in_run: true }, { approvals: [{ approvals: 2, from: ['x'], have: 0 }] }]
    for (const more of others) expect(groupHolds([hold({}), hold({ id: 'h2', ...more })])).toHaveLength(2)
  })

  it('never takes masked calls for the same', () => {
    const masked = { argument_digest: null, masked: true }
    expect(groupHolds([hold(masked), hold({ id: 'h2', tool: 'drop', ...masked })])).toHaveLength(2)
  })

  it('keeps an approval of one from splitting the row', () => {
    expect(groupHolds([hold({}), hold({ id: 'h2', approvals: [{ approvals: 1, from: [], have: 1 }] })])).toHaveLength(1)
  })
})

describe('the filter', () => {
  it.each([
    [{}, true],
    [{ text: 'BO' }, true],
    [{ text: 'nobody' }, false],
    [{ tool: 'pay' }, true],
    [{ session: 's2' }, false],
    [{ risk: 'medium' as const }, false],
  ])('%j', (more, expected) => expect(passes(hold({}), { ...NO_FILTER, ...more })).toBe(expected))

  it('shows a higher risk than asked for', () => {
    expect(passes(hold({ risk: 'critical' }), { ...NO_FILTER, risk: 'medium' })).toBe(true)
  })
})

describe('a batch', () => {
  it('shows every difference, also of numbers that a browser rounds', () => {
    const { shared, differing } = compareHolds([
      detail({}, '{"n":9007199254740992,"to":"Bo"}'),
      detail({ session: 's2' }, '{"n":9007199254740993,"to":"Bo","x":1}'),
    ])
    expect(differing).toEqual([
      { name: 'session', values: ['s1', 's2'] },
      { name: 'arguments/n', values: ['9007199254740992', '9007199254740993'] },
      { name: 'arguments/x', values: [undefined, '1'] },
    ])
    expect(shared.map(({ name }) => name)).toContain('arguments/to')
  })

  it('shows what is the same in one row, and nothing else', () => {
    const { differing } = compareHolds([
      detail({ session: 's1' }, '{"n":1}'),
      detail({ session: 's2' }, '{"n":1}'),
      detail({ session: 's1' }, '{"n":1}'),
      detail({ session: 's1' }, '{"n":"1"}'),
      detail({ session: 's1' }, '{"m":0}'),
    ])
    expect(rowsOf(differing, 5)).toEqual([
      { values: ['s1', '1', undefined], count: 2 },
      { values: ['s2', '1', undefined], count: 1 },
      { values: ['s1', '"1"', undefined], count: 1 },
      { values: ['s1', undefined, '0'], count: 1 },
    ])
  })

  it('is offered for all with the same arguments, and for masked ones as the server knows them', () => {
    const all = [hold({}), hold({ id: 'h2' }), hold({ id: 'h3', in_run: true }), hold({ id: 'h4', argument_digest: 'a2' })]
    expect(siblings(detail({}, '{}'), all)).toEqual(['h2'])
    const masked = [hold({ argument_digest: null }), hold({ id: 'h2', argument_digest: null })]
    const named = { id: 'h9', digest: 'd9', session: null, opened_at: '' }
    expect(siblings({ ...detail({ argument_digest: null }, '{}'), siblings: [named] }, masked)).toEqual(['h9'])
  })

  it('tells each warning once', () => {
    expect(sharedWarnings([detail({}, '{}'), detail({}, '{}')])).toEqual([{ code: 'large', place: '', text: 'large (2 calls)' }])
  })
})
