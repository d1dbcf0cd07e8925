import { afterEach, describe, expect, it, vi } from 'vitest'
import { ApiError } from './api'
import { each } from './many'

const problem = (status: number, retry_after?: number) => new ApiError({ status, code: 'x', title: 'x', retry_after })

afterEach(() => vi.useRealTimers())

describe('many requests', () => {
  it('are answered in their order and told of one by one', async () => {
    const told: number[] = []
    const items = Array.from({ length: 25 }, (_, at) => at)
    expect(await each(items, async (item) => 2 * item, (done) => told.push(done))).toEqual(items.map((item) => 2 * item))
    expect(told).toEqual(items.map((item) => item + 1))
  })

  it('wait as long as the server says', async () => {
    vi.useFakeTimers()
    const times: number[] = []
    const begin = Date.now()
    const work = async () => {
      times.push(Date.now() - begin)
      if (times.length === 1) throw problem(429, 3)
    }
    const all = each(['one'], work, () => {})
    await vi.advanceTimersByTimeAsync(3000)
    await all
    expect(times).toEqual([0, 3000])
  })

  it('end at the first refusal', async () => {
    const asked: number[] = []
    const work = async (item: number) => {
      asked.push(item)
      if (item === 5) throw problem(409)
    }
    await expect(each(Array.from({ length: 100 }, (_, at) => at), work, () => {})).rejects.toThrow('x')
    expect(asked.length).toBeLessThan(12)
  })
})
