import { gzipSync } from 'node:zlib'
import { expect, test } from './countersign'

const HOLDS = 3_000

/** Time is printed and decides nothing; that rows stay few however many holds wait is what keeps frames short. */
test('thousands of holds are a screenful of rows, wherever one scrolls', async ({ countersign, inbox }) => {
  test.setTimeout(300_000)
  for (let sent = 0; sent < HOLDS; sent += 100) {
    await Promise.all(Array.from({ length: 100 }, (_, at) => countersign.submit({ tool: 'send_email', arguments: { n: sent + at } })))
  }
  await expect(inbox.getByText(`${HOLDS.toLocaleString('en')} pending`).first()).toBeVisible({ timeout: 120_000 })
  const list = inbox.getByRole('region', { name: 'List of holds' })

  const devtools = await inbox.context().newCDPSession(inbox)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const busy = async () => (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0
  const before = await busy()
  const frames = 300
  // As fast as a hand flings a list: five rows a frame.
  const most = await list.evaluate(async (list, frames) => {
    let most = 0
    for (let frame = 0; frame < frames; frame += 1) {
      list.scrollTop += 400
      await new Promise(requestAnimationFrame)
      most = Math.max(most, list.querySelectorAll('li').length)
    }
    return most
  }, frames)
  const each = (((await busy()) - before) / frames) * 1000
  console.log(`${each.toFixed(1)} ms of the main thread a frame, ${most} rows on the page`)
  await list.evaluate((list) => list.scrollTo(0, list.scrollHeight))
  await expect(list.getByRole('listitem').last()).toHaveAttribute('aria-posinset', `${HOLDS}`)
  expect(most).toBeGreaterThan(0)
  expect(most).toBeLessThan(60)
})

test('everything the page loads is at most 80 KB, zipped', async ({ countersign, inbox }) => {
  const sizes = new Map<string, number>()
  inbox.on('response', async (response) => {
    const { pathname } = new URL(response.url())
    if (!pathname.startsWith('/v1')) sizes.set(pathname, gzipSync(await response.body()).length)
  })
  await inbox.goto(`${countersign.url}/?again`)
  await expect(inbox.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  expect([...sizes.keys()].some((path) => path.endsWith('.js'))).toBe(true)
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0)
  console.log(`${(total / 1024).toFixed(1)} KB in ${sizes.size} files`)
  expect(total).toBeLessThanOrEqual(80 * 1024)
})
