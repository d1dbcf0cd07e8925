import type { Locator, Page } from '@playwright/test'
import { armed, expect, open, test } from './countersign'

/** Milliseconds for which approve stays inert after anything new is drawn. */
const PAUSE = 700

/** Stops the page's clock, so that not even a slow machine lets the moment pass by itself. */
async function stopClock(page: Page): Promise<void> {
  await page.clock.install()
  await page.reload()
  await expect(page.getByRole('region', { name: 'List of holds' })).toBeVisible()
  await page.clock.pauseAt(Date.now() + 60_000)
}

/** Lets the moment pass, also one that something drawn late began anew. */
async function calm(page: Page): Promise<void> {
  const approve = page.getByRole('button', { name: 'Approve', exact: true })
  await expect(async () => {
    await page.clock.runFor(PAUSE)
    await expect(approve).not.toHaveAttribute('aria-disabled', 'true', { timeout: 500 })
  }).toPass()
}

/** Every decision that the page sends. */
function decisions(page: Page): string[] {
  const sent: string[] = []
  page.on('request', (request) => request.url().endsWith('/decisions') && sent.push(request.postData() ?? ''))
  return sent
}

/** Tries a button in every way a hand can, at once and just before the moment is over. */
async function inertAtFirst(page: Page, button: Locator, keys: string[]): Promise<void> {
  const sent = decisions(page)
  await expect(button).toBeVisible()
  for (const elapsed of [0, PAUSE - 1]) {
    await page.clock.runFor(elapsed)
    await expect(button).toHaveAttribute('aria-disabled', 'true')
    for (const key of keys) await page.keyboard.press(key)
    await button.click({ force: true })
  }
  expect(sent).toEqual([])
  // Something else may have been drawn meanwhile; each such moment ends.
  await expect(async () => {
    await page.clock.runFor(PAUSE)
    await expect(button).not.toHaveAttribute('aria-disabled', 'true', { timeout: 500 })
  }).toPass()
}

test('deny has the focus first, and approve is inert at first', async ({ countersign, inbox }) => {
  const call = await countersign.submit({ tool: 'send_email', arguments: {} })
  await stopClock(inbox)
  await open(inbox, 'send_email')
  await expect(inbox.getByRole('button', { name: 'Deny' })).toBeFocused()
  await inertAtFirst(inbox, inbox.getByRole('button', { name: 'Approve', exact: true }), ['a'])
  await inbox.keyboard.press('a')
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  expect((await countersign.call(call.id)).state).toBe('approved')
})

/** A wider grant arrives on the screen a moment after it was chosen: the yes to it waits anew. */
test('remembering is inert for a moment after each preview', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'send_email', arguments: { to: 'Bo' } })
  await stopClock(inbox)
  await open(inbox, 'send_email')
  await calm(inbox)
  await inbox.keyboard.press('r')
  const yes = inbox.getByRole('button', { name: 'Approve and remember' })
  for (const [which, rule] of [['These arguments', /allow.*send_email/], ['Every call of it', /Whatever its arguments say/]] as const) {
    await inbox.getByLabel('Which calls').selectOption(which)
    await inbox.clock.runFor(200)
    await expect(inbox.getByText(rule).first()).toBeVisible()
    await inertAtFirst(inbox, yes, ['Control+Enter'])
  }
})

test('an edit is inert for a moment after each change', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'send_email', arguments: { to: 'Bo' } })
  await stopClock(inbox)
  await open(inbox, 'send_email')
  await calm(inbox)
  await inbox.keyboard.press('e')
  await inbox.clock.runFor(PAUSE)
  for (const to of ['Ann', 'Cy']) {
    await inbox.getByLabel('to', { exact: true }).fill(to)
    await inertAtFirst(inbox, inbox.getByRole('button', { name: 'Approve the edited call' }), ['Control+Enter'])
  }
})

/** Reading many calls takes longer than the moment, which begins when they are drawn. */
test('a batch is inert for a moment after it is drawn', async ({ countersign, inbox }) => {
  for (const session of ['s1', 's2']) await countersign.submit({ tool: 'send_email', arguments: {}, session })
  await stopClock(inbox)
  await open(inbox, 'send_email')
  let answer = () => {}
  const slow = new Promise<void>((go) => (answer = go))
  await inbox.route('**/v1/holds/*', async (route) => {
    await slow
    await route.continue()
  })
  await inbox.getByRole('button', { name: 'Review together' }).click()
  await inbox.clock.runFor(PAUSE)
  answer()
  await expect(inbox.getByRole('region', { name: 'What differs' })).toBeVisible()
  await inertAtFirst(inbox, inbox.getByRole('button', { name: 'Approve all' }), ['a'])
})

/** B128: keys that were on their way when a hold appeared decide nothing. */
test('stray keys never approve', async ({ countersign, inbox }) => {
  const call = await countersign.submit({ tool: 'send_email', arguments: {} })
  await stopClock(inbox)
  await expect(inbox.getByRole('button', { name: 'send_email' })).toBeVisible()
  for (let turn = 0; turn < 20; turn += 1) {
    // Opened anew each time, with yes on its heels.
    await inbox.keyboard.press('Escape')
    await inbox.keyboard.press('j')
    await inbox.keyboard.press('a')
  }
  expect((await countersign.call(call.id)).state).toBe('pending')
})

/** B128: 256 KiB of arguments, of which the end was seen but not the middle. */
test('approve needs the whole view', async ({ countersign, inbox }) => {
  const content = Array.from({ length: 4000 }, (_, line) => `line ${line} ${'x'.repeat(50)}`).join('\n')
  const call = await countersign.submit({ tool: 'write_file', arguments: { path: 'a.txt', content } })
  await open(inbox, 'write_file')
  const approve = inbox.getByRole('button', { name: 'Approve', exact: true })
  const view = inbox.getByRole('region', { name: 'The hold in full' })
  await view.evaluate((view) => view.scrollTo(0, view.scrollHeight))
  await expect(inbox.getByText(/% seen/)).toBeVisible()
  await inbox.keyboard.press('a')
  await approve.click({ force: true })
  expect((await countersign.call(call.id)).state).toBe('pending')

  await view.evaluate(async (view) => {
    for (let top = 0; top < view.scrollHeight; top += view.clientHeight * 0.8) {
      view.scrollTo(0, top)
      await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))
    }
  })
  await armed(inbox)
  await approve.click()
  await expect(inbox.getByText('Approved write_file')).toBeVisible()
})

test('high risk takes a second act, critical risk the name of the tool', async ({ countersign, inbox }) => {
  const transfer = await countersign.submit({ tool: 'transfer_money', arguments: { amount: 1 } })
  await open(inbox, 'transfer_money')
  await armed(inbox)
  await inbox.keyboard.press('a')
  await inbox.keyboard.press('a')
  expect((await countersign.call(transfer.id)).state).toBe('pending')
  const confirm = inbox.getByRole('button', { name: 'Approve it' })
  await expect(confirm).not.toHaveAttribute('aria-disabled', 'true')
  await confirm.click()
  await expect(inbox.getByText('Approved transfer_money')).toBeVisible()

  const deploy = await countersign.submit({ tool: 'deploy', arguments: {} })
  await open(inbox, 'deploy')
  await armed(inbox)
  await inbox.keyboard.press('a')
  await inbox.waitForTimeout(800)
  await confirm.click({ force: true })
  expect((await countersign.call(deploy.id)).state).toBe('pending')
  await inbox.getByRole('textbox').last().fill('deploy')
  await confirm.click()
  await expect(inbox.getByText('Approved deploy')).toBeVisible()
})

/** Hostile text is shown as text, with its tricks spelled out. */
test('script, markup and invisible characters stay text', async ({ countersign, inbox }) => {
  const evil = '<img src=x onerror="document.title=1">\u202egnp.exe\u200b'
  await countersign.submit({ tool: 'send_email', arguments: { to: evil, [evil]: 1 }, hint: evil, session: evil, agent: [evil] })
  await open(inbox, 'send_email')
  const view = inbox.getByRole('region', { name: 'The hold in full' })
  await expect(view).toContainText('\\u{202e}gnp.exe\\u{200b}')
  expect(await inbox.locator('img[src="x"]').count()).toBe(0)
  expect(await inbox.evaluate(() => document.body.innerText.includes('\u202e'))).toBe(false)
  await expect(inbox.getByRole('list', { name: 'Warnings' })).toContainText('direction of writing')
})
