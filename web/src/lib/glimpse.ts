/** A call in one line, for lists. The pane shows all of it. */
import { escapeJson } from './escape'
import { compact, of } from './json'

/** Characters of a line that anyone could still read. */
const LENGTH = 100

/** Members that are longer come after the short ones, which tell calls apart. */
const SHORT = 48

/** The first members of the arguments: `amount: 20000, to: "Bo"`. Safe to show. */
export function glimpse(args: unknown): string {
  const tree = of(args)
  const members = tree.kind === 'map' ? tree.members.map(([key, value]) => `${key}: ${compact(value)}`) : [compact(tree)]
  const text = members.sort((one, other) => Number(one.length > SHORT) - Number(other.length > SHORT)).join(', ')
  return text === '' ? 'no arguments' : escapeJson(text.slice(0, LENGTH))
}
