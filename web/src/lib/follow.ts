/** Keeps a view up to date with the events that concern it. */
import { tail } from './tail.svelte'

/** Milliseconds between two readings, however many events there are. */
const EVERY = 1000

/** Loads now, and again after events whose name begins like one of these. Returns how to stop. */
export function follow(names: string[], load: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  const stop = tail.listen((event) => {
    if (timer !== undefined || (event && !names.some((name) => event.event.startsWith(name)))) return
    timer = setTimeout(() => {
      timer = undefined
      load()
    }, EVERY)
  })
  load()
  return () => {
    clearTimeout(timer)
    stop()
  }
}
