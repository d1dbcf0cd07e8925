import { expect, it } from 'vitest'
import { backoff, MessageReader } from './sse'

const STREAM = ': hello\n\nevent: hold.opened\nid: 0.1\ndata: {"a":1}\n\nid: 0.2\r\ndata: one\r\ndata: two\r\n\r\nevent: resync\n\n'
const MESSAGES = [
  { event: 'hold.opened', id: '0.1', data: '{"a":1}' },
  { event: 'message', id: '0.2', data: 'one\ntwo' },
  { event: 'resync', id: '0.2', data: '' },
]

it.each([1, 2, 3, 7, 1000])('reads the same messages in pieces of %i', (size) => {
  const reader = new MessageReader()
  const pieces = STREAM.match(new RegExp(`[\\s\\S]{1,${size}}`, 'g')) ?? []
  expect(pieces.flatMap((piece) => reader.push(piece))).toEqual(MESSAGES)
})

it('waits longer after each failure, up to half a minute', () => {
  expect([0, 1, 2].map((failures) => backoff(failures, 1))).toEqual([500, 1000, 2000])
  expect(backoff(50, 1)).toBe(30_000)
  expect(backoff(50, 0)).toBe(15_000)
})
