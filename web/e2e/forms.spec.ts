import type { Page } from '@playwright/test'
import { armed, expect, inboxOf, open, seenWhole, test } from './countersign'

const EMAIL = { tool: 'send_email', arguments: { to: 'bo@example.com', subject: 'Rent' } }

async function press(page: Page, name: string): Promise<void> {
  const button = page.getByRole('button', { name })
  await expect(button).not.toHaveAttribute('aria-disabled', 'true')
  await button.click()
}

test('arguments are edited as JSON, in their own spelling, and broken JSON is never sent', async ({ countersign, inbox }) => {
  const call = await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await armed(inbox)
  await inbox.keyboard.press('e')
  await inbox.getByRole('button', { name: 'JSON' }).click()
  const text = inbox.getByLabel('Arguments as JSON')
  await text.fill('{"to": "bo@example.com", "amount": 9007199254740993')
  await expect(inbox.getByRole('alert')).toContainText('a comma or } is missing, line 1')
  await expect(inbox.getByRole('button', { name: 'Approve the edited call' })).toHaveAttribute('aria-disabled', 'true')
  await text.fill('{"to": "bo@example.com", "amount": 9007199254740993}')
  const changes = inbox.getByRole('region', { name: 'What you change' })
  await expect(changes).toContainText('9007199254740993')
  await expect(changes).toContainText('"Rent"')
  await press(inbox, 'Approve the edited call')
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  expect(await countersign.claimText(call.id)).toContain('{"amount":9007199254740993,"to":"bo@example.com"}')
})

/** Everything a grant can be limited by, in one: fields, scope, time and number of calls. */
test('a grant by fields, for a number of calls and a time, covers that and no more', async ({ countersign, inbox }) => {
  await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await armed(inbox)
  await inbox.keyboard.press('r')
  await inbox.getByLabel('Where').selectOption('All sessions of bank-bot')
  await inbox.getByLabel('Which calls').selectOption('Equal in fields')
  await expect(inbox.getByText('Choose at least one field')).toBeVisible()
  await expect(inbox.getByRole('button', { name: 'Approve and remember' })).toHaveAttribute('aria-disabled', 'true')
  await inbox.getByRole('checkbox', { name: 'to', exact: true }).check()
  await inbox.getByLabel('For how long').selectOption('15 minutes')
  await inbox.getByLabel('How many calls').fill('2')
  await press(inbox, 'Approve and remember')
  await expect(inbox.getByText('Approved send_email')).toBeVisible()

  await inbox.goto(`${countersign.url}/#/grants`)
  await expect(inbox.getByText('2 left')).toBeVisible()
  await expect(inbox.getByText(/14:\d\d|15:00/).first()).toBeVisible()
  const next = (to: string, subject: string, session: string) =>
    countersign.submit({ tool: 'send_email', arguments: { to, subject }, session })
  expect((await next('cy@example.com', 'Rent', 'books')).state).toBe('pending')
  for (const [subject, session] of [['Other', 'another'], ['Third', 'books']] as const) {
    const covered = await next('bo@example.com', subject, session)
    expect(covered.state).toBe('allowed')
    // A use counts when the call runs.
    await countersign.claim(covered.id)
  }
  expect((await next('bo@example.com', 'Fourth', 'books')).state).toBe('pending')
})

test('filters narrow the list and say what they hide', async ({ countersign, inbox }) => {
  await countersign.submit({ ...EMAIL, session: 'mail' })
  await countersign.submit({ tool: 'transfer_money', arguments: { amount: 5 }, session: 'bank' })
  await countersign.submit({ tool: 'deploy', arguments: { to: 'prod' }, session: 'ops' })
  const rows = inbox.getByRole('region', { name: 'List of holds' }).getByRole('listitem')
  await expect(rows).toHaveCount(3)
  await inbox.getByLabel('Risk').selectOption('High and up')
  await expect(rows).toHaveCount(2)
  await inbox.getByLabel('Tool').selectOption('deploy')
  await expect(rows).toHaveCount(1)
  await inbox.getByLabel('Session').selectOption('mail')
  await expect(inbox.getByText('3 wait outside this filter')).toBeVisible()
  await inbox.getByRole('button', { name: 'Clear the filter' }).click()
  await expect(rows).toHaveCount(3)
  await inbox.keyboard.press('/')
  await inbox.keyboard.type('bo@example')
  await expect(rows).toHaveCount(1)
  await expect(rows).toContainText('send_email')
})

test('calls with different arguments are picked and reviewed side by side', async ({ countersign, inbox }) => {
  const calls = []
  for (const to of ['Oslo', 'Bergen', 'Rome']) calls.push(await countersign.submit({ tool: 'book_flight', arguments: { to, seats: 2 } }))
  const boxes = inbox.getByRole('checkbox', { name: 'Select book_flight for a batch' })
  await expect(boxes).toHaveCount(3)
  await boxes.nth(0).check()
  await boxes.nth(1).check()
  await inbox.getByRole('button', { name: 'Review together' }).click()
  await expect(inbox.getByRole('heading', { name: '2 calls together' })).toBeVisible()
  const differs = inbox.getByRole('region', { name: 'What differs' })
  for (const city of ['Oslo', 'Bergen']) await expect(differs).toContainText(city)
  await expect(differs).not.toContainText('Rome')
  await expect(inbox.getByRole('region', { name: 'What they share' })).toContainText('seats')
  await seenWhole(inbox, 'The calls in full')
  await press(inbox, 'Approve all')
  await expect(inbox.getByText('Approved 2 calls')).toBeVisible()
  const states = await Promise.all(calls.map(async ({ id }) => (await countersign.call(id)).state))
  expect(states).toEqual(['approved', 'approved', 'pending'])
})

test('two people are a quorum, and each sees who else has decided', async ({ countersign, inbox, browser }) => {
  const call = await countersign.submit({ tool: 'sign_contract', arguments: { with: 'Bo' } })
  await open(inbox, 'sign_contract')
  await expect(inbox.getByText('0 of 2 approvals')).toBeVisible()
  const ann = await inboxOf(browser, countersign, 'ann')
  await open(ann, 'sign_contract')
  await armed(ann)
  await ann.keyboard.press('a')
  await expect(ann.getByText('It still waits for others')).toBeVisible()
  await expect(inbox.getByText('1 of 2 approvals')).toBeVisible()
  await expect(inbox.getByRole('region', { name: 'Decided so far' })).toContainText('ann')
  expect((await countersign.call(call.id)).state).toBe('pending')
  await seenWhole(inbox)
  await armed(inbox)
  await inbox.keyboard.press('a')
  await expect(inbox.getByText('Approved sign_contract')).toBeVisible()
  expect((await countersign.call(call.id)).state).toBe('approved')
})
