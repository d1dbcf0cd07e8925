import { expect, it } from 'vitest'
import { ChainVerifier } from './chain'

async function sha(text: string): Promise<string> {
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

async function log(): Promise<string[]> {
  const events: string[] = []
  let last = '0'.repeat(64)
  for (const seq of [1, 2, 3]) {
    const body = `{"event":"call.submitted","n":9007199254740993,"text":"\\u0041 ${seq}"}`
    last = await sha(`${last}\n${body}`)
    events.push(`{"chain":"bank/s1","seq":${seq},"hash":"cs1e:${last}","body":${body}}`)
  }
  return events
}

async function problems(events: string[]): Promise<string[]> {
  const verifier = new ChainVerifier()
  expect(await verifier.take(`{"items":[${events.join(',')}],"next":null}`)).toBeNull()
  return verifier.result.problems
}

/** B136: an edited, removed or reordered event is seen. */
it('sees what was done to the record', async () => {
  const [one, two, three] = (await log()) as [string, string, string]
  expect(await problems([one, two, three])).toEqual([])
  expect(await problems([one, two.replace('A 2', 'A 4').replace('\\u0041 2', '\\u0041 4'), three])).toEqual(['bank/s1: event 2 does not match its hash'])
  expect(await problems([one, three])).toEqual(['bank/s1: event 3 follows event 1'])
  expect(await problems([two, one])).not.toEqual([])
})

it('goes on over pages', async () => {
  const [one, two] = (await log()) as [string, string]
  const verifier = new ChainVerifier()
  expect(await verifier.take(`{"items":[${one}],"next":"0.1"}`)).toBe('0.1')
  await verifier.take(`{"items":[${two}],"next":null}`)
  expect(verifier.result).toEqual({ events: 2, chains: 1, problems: [] })
})
