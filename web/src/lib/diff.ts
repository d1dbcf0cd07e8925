/** Differences between texts, line by line, and between trees, leaf by leaf. */
import { leaves, type Tree } from './json'

/** One line of a difference. */
export type DiffLine = { kind: 'same' | 'add' | 'remove'; text: string }

/** Cells of the table that is still computed; beyond it the middle is shown as removed and added whole. */
const CELLS = 4_000_000

/** Compares two texts by lines. The lines of kind same and remove are the old text, same and add the new. */
export function diffLines(old: string, now: string): DiffLine[] {
  const before = old.split('\n')
  const after = now.split('\n')
  let head = 0
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1
  let tail = 0
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) {
    tail += 1
  }
  return [
    ...mark('same', before.slice(0, head)),
    ...middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...mark('same', before.slice(before.length - tail)),
  ]
}

/** What became of one place in a tree. */
export type Change = { place: string; before?: string; after?: string }

/** Compares two trees: every leaf that is new, gone or other. */
export function diffTrees(old: Tree, now: Tree): Change[] {
  const before = new Map(leaves(old))
  const after = new Map(leaves(now))
  const places = new Set([...before.keys(), ...after.keys()])
  return [...places]
    .filter((place) => before.get(place) !== after.get(place))
    .map((place) => ({ place, before: before.get(place), after: after.get(place) }))
}

function mark(kind: DiffLine['kind'], texts: string[]): DiffLine[] {
  return texts.map((text) => ({ kind, text }))
}

function middle(before: string[], after: string[]): DiffLine[] {
  if (before.length * after.length > CELLS) return [...mark('remove', before), ...mark('add', after)]
  const width = after.length + 1
  const longest = new Uint32Array((before.length + 1) * width)
  const at = (row: number, column: number) => longest[row * width + column] ?? 0
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const equal = before[row] === after[column]
      longest[row * width + column] = equal ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1))
    }
  }
  return walk(before, after, at)
}

function walk(before: string[], after: string[], at: (row: number, column: number) => number): DiffLine[] {
  const out: DiffLine[] = []
  let row = 0
  let column = 0
  while (row < before.length || column < after.length) {
    const old = before[row]
    const now = after[column]
    if (old !== undefined && old === now) {
      out.push({ kind: 'same', text: old })
      row += 1
      column += 1
    } else if (old !== undefined && (now === undefined || at(row + 1, column) >= at(row, column + 1))) {
      out.push({ kind: 'remove', text: old })
      row += 1
    } else if (now !== undefined) {
      out.push({ kind: 'add', text: now })
      column += 1
    }
  }
  return out
}
