/** Checks the record in the browser: every event is hashed over the one before it in its chain. */
import { member, parse, type Tree } from './json'

/** What verifying found. */
export type Verified = { events: number; chains: number; problems: string[] }

/** Problems told one by one; more are only counted by the first. */
const TOLD = 20
const ZEROS = '0'.repeat(64)

/** Reads pages of the log in order. */
export class ChainVerifier {
  private heads = new Map<string, { seq: number; hash: string }>()
  private events = 0
  private problems: string[] = []

  /** Takes the text of one page and returns the cursor of the next. */
  async take(page: string): Promise<string | null> {
    const tree = parse(page)
    const items = member(tree, 'items')
    for (const item of items?.kind === 'list' ? items.items : []) await this.event(item)
    return text(member(tree, 'next')) ?? null
  }

  get result(): Verified {
    return { events: this.events, chains: this.heads.size, problems: this.problems }
  }

  private async event(item: Tree): Promise<void> {
    const body = member(item, 'body')
    const chain = text(member(item, 'chain')) ?? ''
    const seq = Number(word(member(item, 'seq')))
    const hash = (text(member(item, 'hash')) ?? '').replace(/^cs1e:/, '')
    const head = this.heads.get(chain) ?? { seq: 0, hash: ZEROS }
    this.events += 1
    this.heads.set(chain, { seq, hash })
    if (seq !== head.seq + 1) return this.problem(`${chain}: event ${seq} follows event ${head.seq}`)
    const raw = body?.kind === 'map' ? (body.raw ?? '') : ''
    const computed = await sha256(`${head.hash}\n${raw}`)
    if (computed !== hash) this.problem(`${chain}: event ${seq} does not match its hash`)
  }

  private problem(text: string): void {
    if (this.problems.length < TOLD) this.problems.push(text)
  }
}

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

function text(tree: Tree | undefined): string | undefined {
  return tree?.kind === 'text' ? tree.text : undefined
}

function word(tree: Tree | undefined): string {
  return tree?.kind === 'word' ? tree.word : ''
}
