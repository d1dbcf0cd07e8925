/**
 * Checks the record in the browser, as `countersign audit verify` checks hashes and signatures.
 *
 * Every event is hashed over the one before it in its chain, and checkpoints sign the heads of all chains and one
 * another: whoever rewrites a chain would have to sign anew.
 */
import { member, parse, type Tree } from './json'
import { canCheckSignatures, isSignedBy, sha256 } from './signature'

/** What verifying found. */
export type Verified = {
  events: number
  chains: number
  checkpoints: number
  /** Whether this browser could check signatures. */
  signatures: boolean
  /** Events that no checkpoint signs yet: their end could be cut off unseen. */
  unproven: number
  /** Keys that signed and that the server does not name as its own. */
  strangers: string[]
  problems: string[]
}

/** Problems told one by one; more are only counted by the first. */
const TOLD = 20
/** Hashes of the youngest events that are kept: a checkpoint may sign a head that has moved on when it is written. */
const RECENT = 10_000
/** Events that may wait for the ones before them. */
const WAITING = 10_000
const ZEROS = '0'.repeat(64)
const SYSTEM = 'system'

/** How far one chain was checked. */
type Progress = {
  seq: number
  hash: string
  signed: number
  /** Events that came before their predecessor, as they do from a store of many nodes. */
  waiting: Map<number, Tree>
  /** What checkpoints signed of events that did not come yet. */
  due: Map<number, string>
}

/** Reads pages of the log, and says at the end what is wrong with it. */
export class ChainVerifier {
  private chains = new Map<string, Progress>()
  private recent = new Map<string, string>()
  private waiting = 0
  private events = 0
  private checkpoints = 0
  private previous: string | undefined
  private strangers = new Set<string>()
  private problems: string[] = []
  private signatures: boolean | undefined
  /** The place of the last event, from which the log can be read on. */
  cursor: string | null = null

  /** Takes the keys that the server signs with. */
  constructor(private readonly keys: string[]) {}

  /** Takes the text of one page and returns the cursor of the next. */
  async take(page: string): Promise<string | null> {
    this.signatures ??= await canCheckSignatures()
    const tree = parse(page)
    for (const item of items(member(tree, 'items'))) await this.event(item)
    return text(member(tree, 'next')) ?? null
  }

  get count(): number {
    return this.events
  }

  /** Whether events are missing that may still come, for they were being written while others were read. */
  get waits(): boolean {
    return [...this.chains.values()].some(({ waiting, due }) => waiting.size > 0 || due.size > 0)
  }

  /** Ends the check. What waited in vain is missing. */
  finish(): Verified {
    for (const [chain, { seq, waiting, due }] of this.chains) {
      const first = Math.min(...waiting.keys())
      if (waiting.size > 0) this.problem(`${chain}: event ${first} follows event ${seq}`)
      const signed = Math.min(...due.keys())
      if (due.size > 0) this.problem(`${chain}: a checkpoint signed event ${signed}, and the record ends before it`)
    }
    const known = [...this.chains.values()].filter(({ seq }) => seq > 0)
    return {
      events: this.events,
      chains: known.length,
      checkpoints: this.checkpoints,
      signatures: this.signatures ?? false,
      unproven: known.reduce((sum, { seq, signed }) => sum + seq - signed, 0),
      strangers: [...this.strangers],
      problems: this.problems,
    }
  }

  private async event(item: Tree): Promise<void> {
    this.events += 1
    this.cursor = text(member(item, 'cursor')) ?? this.cursor
    const body = member(item, 'body')
    const chain = text(member(body, 'chain')) ?? ''
    const seq = Number(word(member(body, 'seq')))
    if (word(member(body, 'v')) !== '1') return this.problem(`${chain}: event ${seq} is of a version unknown here`)
    if (!rowFits(item, body)) this.problem(`${chain}: the row of event ${seq} says something else than the event`)
    const progress = this.progress(chain)
    if (seq <= progress.seq || progress.waiting.has(seq)) return this.problem(`${chain}: event ${seq} is there twice`)
    if (seq !== progress.seq + 1 && this.waiting >= WAITING) return this.problem(`${chain}: event ${seq} follows event ${progress.seq}`)
    progress.waiting.set(seq, item)
    this.waiting += 1
    await this.drain(chain, progress)
  }

  /** Links whatever is next in its chain. */
  private async drain(chain: string, progress: Progress): Promise<void> {
    for (let next = progress.waiting.get(progress.seq + 1); next; next = progress.waiting.get(progress.seq + 1)) {
      progress.waiting.delete(progress.seq + 1)
      this.waiting -= 1
      await this.link(chain, progress, next)
    }
  }

  private async link(chain: string, progress: Progress, item: Tree): Promise<void> {
    const body = member(item, 'body')
    const seq = progress.seq + 1
    const hash = bare(member(item, 'hash'))
    const computed = await sha256(`${progress.hash}\n${raw(body)}`)
    if (computed !== hash) this.problem(`${chain}: event ${seq} does not match its hash`)
    progress.seq = seq
    progress.hash = hash
    this.keep(`${chain}\n${seq}`, hash)
    const signed = progress.due.get(seq)
    progress.due.delete(seq)
    if (signed !== undefined) this.settle(chain, progress, seq, signed, hash)
    if (text(member(body, 'event')) === 'checkpoint.signed') await this.checkpoint(chain, progress, body)
  }

  /** A checkpoint must be signed, follow the one before it, and sign what the record holds. */
  private async checkpoint(chain: string, progress: Progress, body: Tree | undefined): Promise<void> {
    const where = `${chain}: event ${progress.seq}`
    const statement = member(body, 'statement')
    const [heads, previous] = [member(statement, 'heads'), member(statement, 'previous')]
    const extra = statement?.kind === 'map' && statement.members.length !== 2
    if (chain !== SYSTEM || heads?.kind !== 'list' || !previous || extra) return this.problem(`${where} is no checkpoint`)
    const key = text(member(body, 'key')) ?? ''
    if (this.signatures && !(await isSignedBy(key, raw(statement), text(member(body, 'signature')) ?? ''))) {
      return this.problem(`${where}: the checkpoint is not signed by the key it names`)
    }
    if (!this.keys.includes(key)) this.strangers.add(key)
    if ((text(previous) === undefined ? undefined : bare(previous)) !== this.previous) {
      this.problem(`${where} does not name the checkpoint before it`)
    }
    for (const [name, seq, hash] of heads.items.map(items)) this.head(text(name) ?? '', Number(word(seq)), bare(hash))
    progress.signed = progress.seq
    this.previous = progress.hash
    this.checkpoints += 1
  }

  private head(chain: string, seq: number, hash: string): void {
    const progress = this.progress(chain)
    if (progress.seq < seq) progress.due.set(seq, hash)
    else this.settle(chain, progress, seq, hash, this.recent.get(`${chain}\n${seq}`))
  }

  private settle(chain: string, progress: Progress, seq: number, signed: string, found: string | undefined): void {
    if (signed === found) progress.signed = Math.max(progress.signed, seq)
    else this.problem(`${chain}: a checkpoint signed another event ${seq} than the record has`)
  }

  private progress(chain: string): Progress {
    const known = this.chains.get(chain)
    const progress = known ?? { seq: 0, hash: ZEROS, signed: 0, waiting: new Map(), due: new Map() }
    if (!known) this.chains.set(chain, progress)
    return progress
  }

  private keep(place: string, hash: string): void {
    this.recent.set(place, hash)
    const [oldest] = this.recent.keys()
    if (this.recent.size > RECENT && oldest !== undefined) this.recent.delete(oldest)
  }

  private problem(text: string): void {
    if (this.problems.length < TOLD) this.problems.push(text)
  }
}

/** Whether what the record is searched and shown by is what the hashed event says. */
function rowFits(item: Tree, body: Tree | undefined): boolean {
  const texts = ['chain', 'event', 'call', 'hold'].every((name) => text(member(item, name)) === text(member(body, name)))
  const at = Math.floor(Number(word(member(body, 'at'))) / 1000)
  return texts && word(member(item, 'seq')) === word(member(body, 'seq')) && Date.parse(text(member(item, 'at')) ?? '') === at
}

function items(tree: Tree | undefined): Tree[] {
  return tree?.kind === 'list' ? tree.items : []
}

function text(tree: Tree | undefined): string | undefined {
  return tree?.kind === 'text' ? tree.text : undefined
}

function word(tree: Tree | undefined): string {
  return tree?.kind === 'word' ? tree.word : ''
}

/** The exact text of an object, which hashes and signatures are over. */
function raw(tree: Tree | undefined): string {
  return tree?.kind === 'map' ? (tree.raw ?? '{}') : ''
}

function bare(tree: Tree | undefined): string {
  return (text(tree) ?? '').replace(/^cs1e:/, '')
}
