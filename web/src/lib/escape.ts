/**
 * Hostile text made safe to look at: escaped, never stripped.
 *
 * The same promises as the core's renderer. Its lines arrive escaped; this is for the names and words that arrive as
 * they are.
 */
const HIDDEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\p{Me}\u2800]/u
const MARK = /\p{M}/u
const LETTER = /[\p{L}\p{N}]/u
const ASCII = /^[\x20-\x7e]*$/
const PLAIN = /^[\x20-\x5b\x5d-\x7e]*[\x21-\x5b\x5d-\x7e]$/

/** Marks on one letter that are still drawn there. */
const MARKS = 4

/** Shows any text on one line without hiding any of it. Texts that differ are shown differently. */
export function escape(text: string): string {
  return PLAIN.test(text) ? text : escapeBy(text, short)
}

/** Shows text with escapes of its own, as JSON or the core's renderer write it: only what is left bare is escaped. */
export function escapeJson(text: string): string {
  return ASCII.test(text) ? text : escapeBy(text, (char) => (char === ' ' || char === '\\' ? char : undefined))
}

function escapeBy(text: string, known: (char: string, last: boolean) => string | undefined): string {
  const chars = [...text]
  let room = 0
  return chars
    .map((char, at) => {
      const before = room
      room = LETTER.test(char) ? MARKS : 0
      const shown = known(char, at === chars.length - 1)
      if (shown !== undefined) return shown
      const mark = MARK.test(char)
      if (HIDDEN.test(char) || (mark && before === 0)) {
        room = 0
        return code(char)
      }
      if (mark) room = before - 1
      return char
    })
    .join('')
}

/** One part of a text: as it was written, or an escape that we put there. */
export type Piece = { text: string; escaped: boolean }

/** Cuts escaped text into what was written and what we escaped, so that a screen can mark the latter. */
export function pieces(escaped: string): Piece[] {
  const parts = escaped.split(/(\\(?:u\{[0-9a-f]+\}|\[\d+ [a-z ]+\]|[\\nrt"]))/)
  return parts.map((text, at) => ({ text, escaped: at % 2 === 1 })).filter((piece) => piece.text !== '')
}

function short(char: string, last: boolean): string | undefined {
  if (char === '\\') return '\\\\'
  if (char === '\n') return '\\n'
  if (char === '\r') return '\\r'
  if (char === '\t') return '\\t'
  if (char === ' ') return last ? '\\u{20}' : ' '
  return undefined
}

function code(char: string): string {
  return `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`
}
