import { gzipSync } from 'node:zlib'
import type { Page } from '@playwright/test'
import { expect, test } from './countersign'

const HOLDS = 10_000
const FRAMES = 300

/** Prints a figure with its goal. Time decides no test: machines differ, and `npm run speed` is where one looks. */
function figure(name: string, value: number, unit: string, goal: { least: number } | { most: number }): void {
  const met = 'least' in goal ? value >= goal.least : value <= goal.most
  const words = 'least' in goal ? `at least ${goal.least}` : `at most ${goal.most}`
  console.log(`${name}: ${value.toFixed(1)} ${unit}, goal ${words}: ${met ? 'met' : 'missed'}`)
}

/** Flings the list as fast as a hand does, five rows a frame; how many rows there were at most, and how long it took. */
function fling(page: Page): Promise<{ most: number; took: number }> {
  return page.getByRole('region', { name: 'List of holds' }).evaluate(async (list, frames) => {
    let most = 0
    const began = performance.now()
    for (let frame = 0; frame < frames; frame += 1) {
      list.scrollTop += 400
      await new Promise(requestAnimationFrame)
      most = Math.max(most, list.querySelectorAll('li').length)
    }
    return { most, took: performance.now() - began }
  }, FRAMES)
}

/** That rows stay few however many holds wait is what keeps frames short. */
test('ten thousand holds are a screenful of rows, wherever one scrolls', async ({ countersign, inbox }) => {
  test.setTimeout(900_000)
  for (let sent = 0; sent < HOLDS; sent += 100) {
    await Promise.all(Array.from({ length: 100 }, (_, at) => countersign.submit({ tool: 'send_email', arguments: { n: sent + at } })))
  }
  await inbox.reload()
  await expect(inbox.getByText(`${HOLDS.toLocaleString('en')} pending`).first()).toBeVisible({ timeout: 120_000 })
  const devtools = await inbox.context().newCDPSession(inbox)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const busy = async () => (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0
  const before = await busy()
  const { most, took } = await fling(inbox)
  figure(`frames, scrolling ${HOLDS} holds`, (FRAMES * 1000) / took, 'a second', { least: 50 })
  figure('main thread', (((await busy()) - before) / FRAMES) * 1000, 'ms a frame', { most: 16 })
  const list = inbox.getByRole('region', { name: 'List of holds' })
  await list.evaluate((list) => list.scrollTo(0, list.scrollHeight))
  await expect(list.getByRole('listitem').last()).toHaveAttribute('aria-posinset', `${HOLDS}`)
  expect(most).toBeGreaterThan(0)
  expect(most).toBeLessThan(60)
})

test('a page that was never loaded paints and shows what waits', async ({ countersign, page }) => {
  await countersign.submit({ tool: 'send_email', arguments: {} })
  // Its link leads here with an empty cache, as on the first day.
  await page.goto(countersign.link)
  await expect(page.getByRole('button', { name: 'send_email' })).toBeVisible()
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Infinity)
  figure('first paint from a cold start', paint, 'ms', { most: 500 })
  expect(paint).toBeGreaterThan(0)
})

test('everything the page loads is at most 80 KB, zipped', async ({ countersign, inbox }) => {
  // Signed in by now: the heading alone is there before.
  await expect(inbox.getByText('Nothing waits for you')).toBeVisible()
  const paths = new Set<string>()
  inbox.on('response', (response) => {
    const { pathname } = new URL(response.url())
    if (!pathname.startsWith('/v1')) paths.add(pathname)
  })
  await inbox.goto(`${countersign.url}/?again`)
  await expect(inbox.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  expect([...paths].some((path) => path.endsWith('.js'))).toBe(true)
  // Fetched anew: the browser keeps no body of a page that it left.
  const bodies = await Promise.all([...paths].map(async (path) => (await inbox.request.get(countersign.url + path)).body()))
  const total = bodies.reduce((sum, body) => sum + gzipSync(body).length, 0)
  figure(`${paths.size} files, zipped`, total / 1024, 'KB', { most: 80 })
  expect(total).toBeLessThanOrEqual(80 * 1024)
})
