import { expect, it, vi } from 'vitest'
import { ChainVerifier, type Verified } from './chain'
import audit from './fixtures/audit.json?raw'
import { compact, member, of, parse, type Tree } from './json'
import { sha256 } from './signature'

/** The key that signed the record, which a server gave as it is: three sessions, two checkpoints, two events after them. */
const KEY = 'b0P6oS0RlP+z1G9f6sEKPKkQ14AU4WfdfRSfoHSNwU8='
const WHOLE: Verified = { events: 13, chains: 4, checkpoints: 2, signatures: true, unproven: 2, strangers: [], problems: [] }

/** An event as a page has it, its body as exact text. */
type Row = { members: [string, Tree][]; body: string }

const page = parse(audit)
const listed = member(page, 'items')
const rows: Row[] = (listed?.kind === 'list' ? listed.items : []).map((item) => {
  const body = member(item, 'body')
  return {
    members: item.kind === 'map' ? item.members.filter(([name]) => name !== 'body') : [],
    body: body?.kind === 'map' ? (body.raw ?? '') : '',
  }
})

function textOf(row: Row, name: string): string {
  const value = row.members.find(([key]) => key === name)?.[1]
  return value?.kind === 'text' ? value.text : value?.kind === 'word' ? value.word : ''
}

const isAt = (chain: string, seq: number) => (row: Row) => textOf(row, 'chain') === chain && textOf(row, 'seq') === `${seq}`
const set = (row: Row, name: string, value: Tree): Row => ({
  ...row,
  members: row.members.map(([key, old]): [string, Tree] => [key, key === name ? value : old]),
})

/** Changes one event and nothing else. */
const change = (chain: string, seq: number, how: (row: Row) => Row) => rows.map((row) => (isAt(chain, seq)(row) ? how(row) : row))
const edit = (from: string | RegExp, to: string) => (row: Row) => {
  expect(row.body).toMatch(from)
  return { ...row, body: row.body.replace(from, to) }
}

/** Computes hashes anew, as whoever can write to the database could. Numbers follow, too. */
async function rehash(changed: Row[]): Promise<Row[]> {
  const heads = new Map<string, { seq: number; hash: string }>()
  const out: Row[] = []
  for (const row of changed) {
    const chain = textOf(row, 'chain')
    const head = heads.get(chain) ?? { seq: 0, hash: '0'.repeat(64) }
    const seq = head.seq + 1
    const body = row.body.replace(/"seq":\d+/, `"seq":${seq}`)
    const hash = await sha256(`${head.hash}\n${body}`)
    heads.set(chain, { seq, hash })
    out.push({ ...set(set(row, 'seq', of(seq)), 'hash', of(`cs1e:${hash}`)), body })
  }
  return out
}

async function verify(changed: Row[], keys = [KEY], size = changed.length): Promise<Verified> {
  const verifier = new ChainVerifier(keys)
  for (let at = 0; at < changed.length; at += size) {
    const items = changed.slice(at, at + size).map(({ members, body }) => compact({ kind: 'map', members }).replace(/}$/, `,"body":${body}}`))
    await verifier.take(`{"items":[${items.join(',')}],"next":null}`)
  }
  return verifier.finish()
}

const problems = async (changed: Row[]) => (await verify(changed)).problems

it('confirms a record as a server gave it, whatever the pages and whatever the order between chains', async () => {
  expect(await verify(rows)).toEqual(WHOLE)
  expect(await verify(rows, [KEY], 3)).toEqual(WHOLE)
  expect(await verify(rows.toReversed())).toEqual(WHOLE)
})

/** B136: an edited, removed, doubled or moved event is seen. */
it('sees what was done to an event', async () => {
  const edited = change('bank-bot/books', 3, edit('bo@example.com', 'eve@example.com'))
  expect(await problems(edited)).toEqual(['bank-bot/books: event 3 does not match its hash'])
  expect(await problems(rows.filter((row) => !isAt('bank-bot/books', 3)(row)))).toContain('bank-bot/books: event 4 follows event 2')
  expect(await problems([...rows, ...rows.filter(isAt('bank-bot/books', 3))])).toEqual(['bank-bot/books: event 3 is there twice'])
  const moved = change('bank-bot/books', 3, (row) => set(row, 'chain', of('bank-bot/post')))
  expect(await problems(moved)).toEqual(['bank-bot/books: the row of event 3 says something else than the event'])
  for (const [name, value] of [['event', 'call.refused'], ['hold', 'hold_x'], ['at', '2020-01-01T00:00:00Z']] as const) {
    expect(await problems(change('bank-bot/post', 3, (row) => set(row, name, of(value))))).toHaveLength(1)
  }
})

/** Hashes that were computed anew fit each other, and not what was signed. */
it('sees that a chain was written anew after it was signed', async () => {
  const edited = await rehash(change('bank-bot/books', 3, edit('bo@example.com', 'eve@example.com')))
  expect(await problems(edited)).toEqual(['bank-bot/books: a checkpoint signed another event 5 than the record has'])
  const cut = await rehash(rows.filter((row) => !isAt('bank-bot/books', 5)(row)))
  expect(await problems(cut)).toEqual(['bank-bot/books: a checkpoint signed event 5, and the record ends before it'])
  const gone = await rehash(rows.filter((row) => textOf(row, 'chain') !== 'bank-bot/post'))
  expect(await problems(gone)).toContainEqual(expect.stringContaining('bank-bot/post: a checkpoint signed event'))
})

it('sees what was done to a checkpoint', async () => {
  const removed = await rehash(rows.filter((row) => !isAt('system', 2)(row)))
  expect(await problems(removed)).toContain('system: event 2 does not name the checkpoint before it')
  const unsigned = await rehash(change('system', 3, edit(/"signature":"../, '"signature":"AA')))
  expect(await problems(unsigned)).toEqual(['system: event 3: the checkpoint is not signed by the key it names'])
  const restated = await rehash(change('system', 3, edit(/\["bank-bot\/post",3,/, '["bank-bot/post",2,')))
  expect(await problems(restated)).toEqual(['system: event 3: the checkpoint is not signed by the key it names'])
  const extended = await rehash(change('system', 3, edit('"heads":', '"extra":1,"heads":')))
  expect(await problems(extended)).toEqual(['system: event 3 is no checkpoint'])
})

/** Who rewrites everything must sign it, and has not the server's key. */
it('names a key that is not the server’s', async () => {
  expect(await verify(rows, ['another'])).toEqual({ ...WHOLE, strangers: [KEY] })
})

it('counts what no checkpoint signs', async () => {
  const none = rows.filter((row) => textOf(row, 'event') !== 'checkpoint.signed')
  expect(await verify(none)).toEqual({ ...WHOLE, events: 11, checkpoints: 0, unproven: 11 })
})

it('says so where the browser cannot check signatures', async () => {
  vi.spyOn(crypto.subtle, 'importKey').mockRejectedValue(new DOMException('no Ed25519', 'NotSupportedError'))
  const forged = await rehash(change('system', 3, edit(/"signature":"../, '"signature":"AA')))
  expect(await verify(forged)).toEqual({ ...WHOLE, signatures: false })
  vi.restoreAllMocks()
})
