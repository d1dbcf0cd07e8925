import { expect, it } from 'vitest'
import { Transcript } from './transcript'

const main = { thread: 'main', agents: ['banker'] }
const child = { thread: 'call_1', agents: ['banker', 'clerk'] }
const call = (id: string, state: string, agent: string[], holds: unknown[] = []) => ({ id, state, agent, holds })

function told(...events: [string, unknown][]): Transcript {
  const transcript = new Transcript()
  for (const [event, data] of events) transcript.take(event, data)
  return transcript
}

it('shows what was said and called in order, children deeper', () => {
  const { items } = told(
    ['message', { ...main, entry: 0, text: 'send it' }],
    ['said', { ...main, entry: 1, text: '' }],
    ['call', call('call_1', 'succeeded', ['banker'])],
    ['message', { ...child, entry: 0, text: 'send it to Bo' }],
    ['call', call('call_2', 'pending', ['banker', 'clerk'])],
    ['done', { ...main, entry: 3, text: 'Sent.' }],
  )
  expect(items.map(({ kind, depth, agent }) => [kind, depth, agent])).toEqual([
    ['message', 0, 'banker'],
    ['call', 0, 'banker'],
    ['message', 1, 'clerk'],
    ['call', 1, 'clerk'],
    ['said', 0, 'banker'],
  ])
})

it('a call shows its hold while that waits, and then what came of it', () => {
  const transcript = told(['call', call('call_2', 'pending', ['banker'])], ['hold', { id: 'hold_1', call: 'call_2' }])
  expect(transcript.items[0]).toMatchObject({ hold: 'hold_1' })
  transcript.take('hold_closed', { call: 'call_2', hold: { id: 'hold_1', state: 'approved' } })
  transcript.take('ended', call('call_2', 'succeeded', ['banker']))
  transcript.take('results', { ...main, entry: 2, results: [{ call: 'call_2', text: 'done' }], handed_to: null })
  expect(transcript.items).toHaveLength(1)
  expect(transcript.items[0]).toMatchObject({ hold: null, result: 'done', call: { state: 'succeeded' } })
})

it('pieces of text grow until the whole text takes their place', () => {
  const transcript = told(
    ['text', { ...main, entry: 1, start: true, text: 'One ' }],
    ['text', { ...main, entry: 1, start: false, text: 'by' }],
    ['text', { ...child, entry: 1, start: true, text: 'Two' }],
  )
  expect(transcript.unfinished).toMatchObject([{ text: 'One by' }, { text: 'Two', depth: 1 }])
  transcript.take('text', { ...main, entry: 1, start: true, text: 'Anew' })
  expect(transcript.unfinished[0]).toMatchObject({ text: 'Anew' })
  transcript.take('done', { ...main, entry: 1, text: 'Anew.' })
  expect(transcript.unfinished).toMatchObject([{ text: 'Two' }])
  expect(transcript.items).toMatchObject([{ kind: 'said', text: 'Anew.', unfinished: false }])
})

it('tells of the end and of a hand-over, and passes over what it does not know', () => {
  const { items, status } = told(
    ['state', { state: 'idle', holds: [], client_calls: [], queued: 0, error: null }],
    ['results', { ...main, entry: 2, results: [], handed_to: 'auditor' }],
    ['stopped', { ...main, entry: 3, why: 'timed_out', detail: null }],
    ['news', { anything: true }],
  )
  expect(status?.state).toBe('idle')
  expect(items).toMatchObject([{ kind: 'handed', to: 'auditor' }, { kind: 'stopped', why: 'timed out' }])
})
