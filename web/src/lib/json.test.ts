import { describe, expect, it } from 'vitest'
import { compact, leaves, member, of, parse, pretty, read, same, withMember } from './json'

describe('numbers', () => {
  it.each(['9007199254740993', '18446744073709551615', '1.0', '-0.0', '1e400', '0.1'])('keeps %s as it is spelled', (number) => {
    expect(compact(parse(number))).toBe(number)
    expect(compact(of(read(`{"a":[${number}]}`)))).toBe(`{"a":[${number}]}`)
  })

  it('lets no answer pass for a number', () => {
    const text = '{"number":"5","text":"9007199254740993"}'
    expect(compact(of(read(text)))).toBe(text)
  })

  it('leaves ordinary numbers ordinary', () => {
    expect(read('{"seq":12,"text":"1.0"}')).toEqual({ seq: 12, text: '1.0' })
  })
})

describe('reading', () => {
  it.each([
    ['{"a":1,"a":2}', 'occurs twice'],
    ['{"a":1', 'missing'],
    ['[1,]', 'no value'],
    ['"a\nb"', 'not closed'],
    ['01', 'follows'],
    ['', 'too early'],
    ['{a:1}', 'double quotes'],
  ])('refuses %s', (text, why) => expect(() => parse(text)).toThrow(why))

  it('refuses what is nested too deeply, without a stack overflow', () => {
    expect(() => parse('['.repeat(100_000))).toThrow('too deeply')
  })

  it('remembers the exact text of an object', () => {
    const body = member(parse('{"body": {"a" : "\\u0041"} }'), 'body')
    expect(body?.kind === 'map' && body.raw).toBe('{"a" : "\\u0041"}')
  })
})

describe('writing', () => {
  it('is the same value in both spellings', () => {
    const text = '{"a":[1,{"b":"\\n\\u2028"}],"c":{},"d":[]}'
    expect(same(parse(pretty(parse(text))), parse(text))).toBe(true)
  })

  it('sets, replaces and takes out members', () => {
    const tree = parse('{"a":1,"b":2}')
    expect(compact(withMember(tree, 'a', of('x')))).toBe('{"a":"x","b":2}')
    expect(compact(withMember(tree, 'c', of(3)))).toBe('{"a":1,"b":2,"c":3}')
    expect(compact(withMember(tree, 'b', undefined))).toBe('{"a":1}')
  })

  it('names every leaf by its place', () => {
    expect(leaves(parse('{"a/b":[1,{}],"c~":"x"}'))).toEqual([['/a~1b/0', '1'], ['/a~1b/1', '{}'], ['/c~0', '"x"']])
  })
})
