import { describe, expect, it } from 'vitest'
import { escape, escapeJson, pieces } from './escape'

describe('escape', () => {
  it.each([
    ['plain text', 'plain text'],
    ['a\u202eb', 'a\\u{202e}b'],
    ['a\u200bb', 'a\\u{200b}b'],
    ['\u{e0041}', '\\u{e0041}'],
    ['\u001b[2J', '\\u{1b}[2J'],
    ['a\nb\tc\r', 'a\\nb\\tc\\r'],
    ['back\\slash', 'back\\\\slash'],
    ['end ', 'end\\u{20}'],
    ['nbsp\u00a0', 'nbsp\\u{a0}'],
    ['\u2800', '\\u{2800}'],
    ['e\u0301', 'e\u0301'],
    ['\u0301e', '\\u{301}e'],
    ['grüße 東京', 'grüße 東京'],
  ])('shows %j', (text, shown) => expect(escape(text)).toBe(shown))

  it('draws at most four marks on a letter', () => {
    expect(escape(`a${'\u0301'.repeat(6)}`)).toBe(`a${'\u0301'.repeat(4)}\\u{301}\\u{301}`)
  })

  /** B128: what differs is shown differently, over every code point next to its own escape. */
  it('is injective', () => {
    const codes = Array.from({ length: 0x110000 }, (_, code) => code).filter((code) => code < 0xd800 || code > 0xdfff)
    const shown = new Set(codes.map((code) => escape(`x${String.fromCodePoint(code)}y`)))
    expect(shown.size).toBe(codes.length)
    expect(escape('\\n')).not.toBe(escape('\n'))
    expect(escape('\\u{202e}')).not.toBe(escape('\u202e'))
  }, 30_000)

  it('leaves the escapes of JSON alone and hides nothing else', () => {
    expect(escapeJson('"a\\nb\u202e"')).toBe('"a\\nb\\u{202e}"')
  })
})

describe('pieces', () => {
  it('tells escapes from what was written', () => {
    expect(pieces('a\\u{202e}b\\[57 blanks]\\\\')).toEqual([
      { text: 'a', escaped: false },
      { text: '\\u{202e}', escaped: true },
      { text: 'b', escaped: false },
      { text: '\\[57 blanks]', escaped: true },
      { text: '\\\\', escaped: true },
    ])
  })

  it('loses nothing', () => {
    const text = escape('a\u202e\\b\n"c"')
    expect(pieces(text).map((piece) => piece.text).join('')).toBe(text)
  })
})
