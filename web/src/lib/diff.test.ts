import { expect, it } from 'vitest'
import { diffLines, diffTrees } from './diff'
import { parse } from './json'

const side = (lines: ReturnType<typeof diffLines>, kind: string) =>
  lines.filter((line) => line.kind === 'same' || line.kind === kind).map((line) => line.text).join('\n')

it.each([
  ['', ''],
  ['a\nb\nc', 'a\nx\nc'],
  ['a\nb', 'b\na'],
  ['one', 'one\ntwo'],
  ['a\nb\nc\nd', 'd\nc\nb\na'],
])('holds both texts: %j and %j', (old, now) => {
  const lines = diffLines(old, now)
  expect(side(lines, 'remove')).toBe(old)
  expect(side(lines, 'add')).toBe(now)
})

it('marks only what changed', () => {
  expect(diffLines('a\nb\nc', 'a\nx\nc').map(({ kind }) => kind)).toEqual(['same', 'remove', 'add', 'same'])
})

it('gives up on comparing huge texts, not on showing them', () => {
  const [old, now] = ['a', 'b'].map((letter) => Array.from({ length: 5000 }, (_, at) => `${letter}${at}`).join('\n'))
  const lines = diffLines(old ?? '', now ?? '')
  expect(side(lines, 'remove')).toBe(old)
  expect(side(lines, 'add')).toBe(now)
})

it('names each changed leaf', () => {
  expect(diffTrees(parse('{"a":1,"b":[1,2],"c":"x"}'), parse('{"a":1.0,"b":[1],"d":"x"}'))).toEqual([
    { place: '/a', before: '1', after: '1.0' },
    { place: '/b/1', before: '2', after: undefined },
    { place: '/c', before: '"x"', after: undefined },
    { place: '/d', before: undefined, after: '"x"' },
  ])
})
