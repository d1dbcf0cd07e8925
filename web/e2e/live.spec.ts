import { armed, expect, open, test } from './countersign'

test('another decision closes the hold on this screen', async ({ countersign, inbox, context }) => {
  await countersign.submit({ tool: 'send_email', arguments: {} })
  const other = await context.newPage()
  await other.goto(countersign.url)
  await open(inbox, 'send_email')
  await open(other, 'send_email')
  await armed(other)
  await other.keyboard.press('a')
  await expect(inbox.getByText('This hold is closed')).toBeVisible()
  await expect(inbox.getByRole('button', { name: 'Approve', exact: true })).toHaveCount(0)
})

test('a lost server is seen, and what was missed is read again', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'send_email', arguments: {} })
  await expect(inbox.getByText('1 pending').first()).toBeVisible()
  await countersign.crash()
  await expect(inbox.getByText('The server does not answer')).toBeVisible()
  await countersign.restart()
  await countersign.submit({ tool: 'send_letter', arguments: {} })
  await expect(inbox.getByText('The server does not answer')).toHaveCount(0, { timeout: 40_000 })
  await expect(inbox.getByRole('button', { name: 'send_letter' })).toBeVisible()
})

test('a link works once', async ({ countersign, inbox, browser }) => {
  await expect(inbox).toHaveURL(`${countersign.url}/#/inbox`)
  const stranger = await (await browser.newContext()).newPage()
  await stranger.goto(countersign.link)
  await expect(stranger.getByRole('heading', { name: 'Sign in to Countersign' })).toBeVisible()
})

/** What is on the page must not grow with the list. The time of a frame is printed; a busy machine decides nothing. */
test('a long list of holds scrolls with a few rows on the page', async ({ countersign, inbox }) => {
  const holds = 2_000
  for (let sent = 0; sent < holds; sent += 50) {
    await Promise.all(Array.from({ length: 50 }, (_, at) => countersign.submit({ tool: 'send_email', arguments: { n: sent + at } })))
  }
  await expect(inbox.getByText('2,000 pending').first()).toBeVisible({ timeout: 60_000 })
  const list = inbox.getByRole('region', { name: 'List of holds' })

  const devtools = await inbox.context().newCDPSession(inbox)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const busy = async () => (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0
  const before = await busy()
  const frames = 120
  const most = await list.evaluate(async (list, frames) => {
    let most = 0
    for (let frame = 0; frame < frames; frame += 1) {
      list.scrollTop += 300
      await new Promise(requestAnimationFrame)
      most = Math.max(most, list.querySelectorAll('[role=listitem], li').length)
    }
    return most
  }, frames)
  console.log(`${((((await busy()) - before) / frames) * 1000).toFixed(1)} ms of the main thread a frame`)
  expect(most).toBeLessThan(60)
  expect(most).toBeGreaterThan(0)
})
