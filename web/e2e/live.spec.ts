import type { Locator } from '@playwright/test'
import { armed, expect, inboxOf, open, test } from './countersign'

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

/** Nothing is shown, or asked for, as somebody who is not signed in yet. */
test('a link is traded before anything is shown', async ({ countersign, page }) => {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  await page.route('**/v1/sign-in', async (route) => {
    await released
    await route.continue()
  })
  await page.goto(countersign.link)
  await expect(page.getByRole('status').getByText('Signing in')).toBeVisible()
  await expect(page.getByRole('heading')).toHaveCount(0)
  release()
  await expect(page.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  await expect(page.getByText('Nothing waits for you')).toBeVisible()
})

/** Nothing can be approved once the time is over, whoever looks at it. */
test('a hold that expires while it is open can no longer be approved', async ({ countersign, inbox }) => {
  const call = await countersign.submit({ tool: 'hurry', arguments: {} })
  await open(inbox, 'hurry')
  await armed(inbox)
  await expect(inbox.getByText('This hold is closed')).toContainText('expired', { timeout: 60_000 })
  await expect(inbox.getByRole('button', { name: 'Approve', exact: true })).toHaveCount(0)
  await inbox.keyboard.press('a')
  expect((await countersign.call(call.id)).refusal).toMatchObject({ kind: 'expired' })
})

/** One end per hold: of two who decide at once, the second is told who was first. */
test('of two people who decide at once, one wins and the other hears who it was', async ({ countersign, inbox, browser }) => {
  const call = await countersign.submit({ tool: 'send_email', arguments: {} })
  const ann = await inboxOf(browser, countersign, 'ann')
  await Promise.all([open(inbox, 'send_email'), open(ann, 'send_email')])
  await ann.keyboard.press('d')
  await ann.getByLabel('Reason, optional').fill('Not today')
  await armed(inbox)
  const me = (await inbox.evaluate(async () => (await fetch('/v1/me')).json())) as { name: string }
  // Whoever is second may find the button gone, and is not waited for: what the first is told is gone soon.
  const tries = (button: Locator) => button.click({ timeout: 10_000 }).catch(() => undefined)
  const clicks = Promise.all([
    tries(inbox.getByRole('button', { name: 'Approve', exact: true })),
    tries(ann.getByRole('button', { name: 'Deny this call' })),
  ])
  await expect(async () => expect((await countersign.call(call.id)).state).not.toBe('pending')).toPass()
  const approved = (await countersign.call(call.id)).state === 'approved'
  const [winner, loser, name] = approved ? [inbox, ann, me.name] : [ann, inbox, 'ann']
  await expect(winner.getByText(approved ? 'Approved send_email' : 'Denied send_email')).toBeVisible()
  await expect(loser.getByText(/Approved send_email|Denied send_email/)).toHaveCount(0)
  await expect(loser.getByText('This hold is closed')).toContainText(`${approved ? 'approved' : 'denied'} by ${name}`)
  await clicks
})
