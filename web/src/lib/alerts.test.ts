import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { Event } from './types'

type Shown = { title: string; body: string; onclick?: () => void }
let shown: Shown[] = []
let asked = 0

class Fake {
  static permission = 'default'
  static requestPermission = () => {
    asked += 1
    return Promise.resolve(Fake.permission)
  }
  onclick?: () => void
  constructor(readonly title: string, options: { body: string }) {
    shown.push(Object.assign(this, { body: options.body }) as Shown)
  }
  close() {}
}

const opened = (hold: string): Event => ({
  cursor: '0.1', event: 'hold.opened', at: '', call: 'call_1', hold, chain: 'c', seq: 1, hash: '',
  body: { tool: 'transfer\u202e', server: 'bank', hint: 'canary', payload: { amount: 'canary' } },
})

function look(state: 'visible' | 'hidden') {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true })
  document.dispatchEvent(new Event('visibilitychange'))
}
const { Event } = window

async function fresh() {
  vi.resetModules()
  return (await import('./alerts.svelte')).alerts
}

beforeEach(() => {
  ;[shown, asked] = [[], 0]
  Fake.permission = 'granted'
  vi.stubGlobal('Notification', Fake)
  localStorage.clear()
  look('hidden')
})
afterEach(() => vi.unstubAllGlobals())

it('asks nobody until the button is pressed, and takes a no for a no', async () => {
  const alerts = await fresh()
  alerts.hear(opened('hold_1'), new Map())
  expect([asked, shown.length]).toEqual([0, 0])
  Fake.permission = 'denied'
  await alerts.toggle()
  alerts.hear(opened('hold_1'), new Map())
  expect([asked, alerts.on, shown.length]).toEqual([1, false, 0])
})

it('tells of a new hold only while nobody looks, and nothing of its arguments', async () => {
  const alerts = await fresh()
  await alerts.toggle()
  look('visible')
  alerts.hear(opened('hold_1'), new Map())
  look('hidden')
  alerts.hear(opened('hold_2'), new Map([['hold_2', true]]))
  expect(shown).toEqual([])
  alerts.hear(opened('hold_3'), new Map())
  expect(shown.map(({ title, body }) => [title, body])).toEqual([['A call waits for a decision', 'bank/transfer\\u{202e}']])
  expect(JSON.stringify(shown)).not.toContain('canary')
  shown[0]?.onclick?.()
  expect(location.hash).toBe('#/inbox/hold_3')
})

it('counts a flood instead of repeating it, until somebody looks', async () => {
  const alerts = await fresh()
  await alerts.toggle()
  for (const hold of ['a', 'b', 'c']) alerts.hear(opened(hold), new Map())
  expect(shown.at(-1)?.title).toBe('3 calls wait for a decision')
  look('visible')
  look('hidden')
  alerts.hear(opened('d'), new Map())
  expect(shown.at(-1)?.title).toBe('A call waits for a decision')
})

it('remembers the choice, and can be turned off', async () => {
  await (await fresh()).toggle()
  const alerts = await fresh()
  expect([alerts.on, asked]).toEqual([true, 1])
  await alerts.toggle()
  expect((await fresh()).on).toBe(false)
})
