/**
 * JSON that keeps every number as it is spelled.
 *
 * `JSON.parse` rounds 9007199254740993 to another number. What an approver sees and sends back must be the bytes the
 * agent wrote, so arguments are read into this tree instead.
 */
/* An object that was read remembers its exact text as `raw`, for hashes. */
export type Tree =
  | { kind: 'word'; word: string }
  | { kind: 'text'; text: string }
  | { kind: 'list'; items: Tree[] }
  | { kind: 'map'; members: [string, Tree][]; raw?: string }

/** How deep values may nest; the server refuses deeper ones long before. */
const DEPTH = 128

/** Chosen anew for each page, so that no answer can hold it. */
const VERBATIM = `number ${crypto.randomUUID()}`

/** Thrown for text that is no JSON, with the place where reading stopped. */
export class JsonError extends Error {
  constructor(
    message: string,
    readonly at: number,
  ) {
    super(message)
  }
}

/** Reads JSON. Refuses keys that occur twice, as the server does. */
export function parse(text: string): Tree {
  const reader = new Reader(text)
  const tree = reader.value(0)
  reader.end()
  return tree
}

/** Writes a tree without blanks. */
export function compact(tree: Tree): string {
  switch (tree.kind) {
    case 'word':
      return tree.word
    case 'text':
      return JSON.stringify(tree.text)
    case 'list':
      return `[${tree.items.map(compact).join(',')}]`
    case 'map':
      return `{${tree.members.map(([key, value]) => `${JSON.stringify(key)}:${compact(value)}`).join(',')}}`
  }
}

/** Writes a tree for people, two blanks a level. */
export function pretty(tree: Tree, indent = ''): string {
  const inner = `${indent}  `
  if (tree.kind === 'list' && tree.items.length > 0) {
    return `[\n${tree.items.map((item) => inner + pretty(item, inner)).join(',\n')}\n${indent}]`
  }
  if (tree.kind === 'map' && tree.members.length > 0) {
    const members = tree.members.map(([key, value]) => `${inner}${JSON.stringify(key)}: ${pretty(value, inner)}`)
    return `{\n${members.join(',\n')}\n${indent}}`
  }
  return compact(tree)
}

/** A member of an object. */
export function member(tree: Tree | undefined, key: string): Tree | undefined {
  return tree?.kind === 'map' ? tree.members.find(([name]) => name === key)?.[1] : undefined
}

/** The same object with a member set, or taken out where the value is undefined. */
export function withMember(tree: Tree, key: string, value: Tree | undefined): Tree {
  const members = tree.kind === 'map' ? tree.members : []
  if (value === undefined) return { kind: 'map', members: members.filter(([name]) => name !== key) }
  const known = members.some(([name]) => name === key)
  const replaced = members.map(([name, old]): [string, Tree] => [name, name === key ? value : old])
  return { kind: 'map', members: known ? replaced : [...members, [key, value]] }
}

/** Every leaf with the place where it stands, as a JSON pointer. Empty lists and objects are leaves. */
export function leaves(tree: Tree, place = ''): [string, string][] {
  if (tree.kind === 'list' && tree.items.length > 0) {
    return tree.items.flatMap((item, index) => leaves(item, `${place}/${index}`))
  }
  if (tree.kind === 'map' && tree.members.length > 0) {
    return tree.members.flatMap(([key, value]) => leaves(value, `${place}/${step(key)}`))
  }
  return [[place, compact(tree)]]
}

/** Whether two trees say the same, the order of members aside. */
export function same(one: Tree, other: Tree): boolean {
  return compact(sorted(one)) === compact(sorted(other))
}

/** A tree from a value of our own making or of {@link read}. */
export function of(value: unknown): Tree {
  if (typeof value === 'string') return { kind: 'text', text: value }
  if (Array.isArray(value)) return { kind: 'list', items: value.map(of) }
  if (typeof value !== 'object' || value === null) return { kind: 'word', word: JSON.stringify(value ?? null) }
  const spelled = (value as Record<string, unknown>)[VERBATIM]
  if (typeof spelled === 'string') return { kind: 'word', word: spelled }
  const members = Object.entries(value).filter(([, value]) => value !== undefined)
  return { kind: 'map', members: members.map(([key, value]): [string, Tree] => [key, of(value)]) }
}

/**
 * Reads an answer of the server into ordinary values, quickly.
 *
 * A number that would change its spelling becomes an object under a key nobody can guess, which {@link of} knows.
 */
export function read(text: string): unknown {
  const kept = text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) =>
    token[0] === '"' || String(Number(token)) === token ? token : `{"${VERBATIM}":"${token}"}`,
  )
  return JSON.parse(kept)
}

function step(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1')
}

function sorted(tree: Tree): Tree {
  if (tree.kind === 'list') return { kind: 'list', items: tree.items.map(sorted) }
  if (tree.kind !== 'map') return tree
  const members = tree.members.map(([key, value]): [string, Tree] => [key, sorted(value)])
  return { kind: 'map', members: members.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)) }
}

class Reader {
  private at = 0
  constructor(private readonly text: string) {}

  value(depth: number): Tree {
    if (depth > DEPTH) this.fail('nested too deeply')
    this.blanks()
    const char = this.text[this.at]
    if (char === '{') return this.map(depth)
    if (char === '[') return this.list(depth)
    if (char === '"') return { kind: 'text', text: this.string() }
    return { kind: 'word', word: this.word() }
  }

  end(): void {
    this.blanks()
    if (this.at < this.text.length) this.fail('something follows the value')
  }

  private map(depth: number): Tree {
    const members: [string, Tree][] = []
    const seen = new Set<string>()
    const start = this.at
    this.at += 1
    this.blanks()
    if (this.take('}')) return { kind: 'map', members }
    do {
      this.blanks()
      if (this.text[this.at] !== '"') this.fail('a member needs a name in double quotes')
      const key = this.string()
      if (seen.has(key)) this.fail(`the member ${JSON.stringify(key)} occurs twice`)
      seen.add(key)
      this.blanks()
      if (!this.take(':')) this.fail('a colon is missing')
      members.push([key, this.value(depth + 1)])
      this.blanks()
    } while (this.take(','))
    if (!this.take('}')) this.fail('a comma or } is missing')
    return { kind: 'map', members, raw: this.text.slice(start, this.at) }
  }

  private list(depth: number): Tree {
    const items: Tree[] = []
    this.at += 1
    this.blanks()
    if (this.take(']')) return { kind: 'list', items }
    do {
      items.push(this.value(depth + 1))
      this.blanks()
    } while (this.take(','))
    if (!this.take(']')) this.fail('a comma or ] is missing')
    return { kind: 'list', items }
  }

  private string(): string {
    const match = this.sticky(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y)
    if (match === undefined) this.fail('a text is not closed, or holds a bare control character')
    return JSON.parse(match) as string
  }

  private word(): string {
    const match = this.sticky(/true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y)
    if (match === undefined) this.fail(this.at < this.text.length ? 'no value begins here' : 'the text ends too early')
    return match
  }

  private sticky(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at
    const match = pattern.exec(this.text)?.[0]
    if (match !== undefined) this.at += match.length
    return match
  }

  private blanks(): void {
    this.sticky(/[ \t\n\r]+/y)
  }

  private take(char: string): boolean {
    if (this.text[this.at] !== char) return false
    this.at += 1
    return true
  }

  private fail(message: string): never {
    const line = this.text.slice(0, this.at).split('\n').length
    throw new JsonError(`${message}, line ${line}`, this.at)
  }
}
