/** The same thing for each of many, as fast as the server lets us. */
import { ApiError } from './api'

/** Requests on their way at once. More would keep the browser's other requests waiting. */
const AT_ONCE = 4
/** How often a request is made again that the server refused for its rate. */
const PATIENCE = 10

/** Does it for every item, in order, a few at once. The first failure ends it: nothing new is begun. */
export async function each<T, R>(items: T[], work: (item: T) => Promise<R>, tell: (done: number) => void): Promise<R[]> {
  const done: R[] = []
  let next = 0
  let count = 0
  let failed = false
  const worker = async () => {
    while (!failed && next < items.length) {
      const at = next++
      try {
        done[at] = await patiently(() => work(items[at] as T))
      } catch (error) {
        failed = true
        throw error
      }
      tell(++count)
    }
  }
  const ended = await Promise.allSettled(Array.from({ length: AT_ONCE }, worker))
  const failure = ended.find((one) => one.status === 'rejected')
  if (failure) throw failure.reason
  return done
}

/** Waits as long as it is told to, and asks again. */
async function patiently<R>(work: () => Promise<R>): Promise<R> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work()
    } catch (error) {
      const wait = error instanceof ApiError && error.problem.status === 429 ? error.problem.retry_after : undefined
      if (wait === undefined || tries === PATIENCE) throw error
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait))
    }
  }
}
