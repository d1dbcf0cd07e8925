import { armed, expect, open, seenWhole, test } from './countersign'

const EMAIL = { tool: 'send_email', arguments: { to: 'bo@example.com', subject: 'Rent' } }

// B127: live, with exactly what will run, approve and deny, and what is remembered.
test('a call appears live, is approved, and runs with exactly what was shown', async ({ countersign, inbox }) => {
  await expect(inbox.getByText('Nothing waits for you')).toBeVisible()
  const call = await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await expect(inbox.getByRole('region', { name: 'What will run' })).toContainText('"bo@example.com"')
  await armed(inbox)
  await inbox.keyboard.press('a')
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  expect((await countersign.call(call.id)).state).toBe('approved')
  expect((await countersign.claim(call.id)).arguments).toEqual(EMAIL.arguments)
})

test('a denial carries its reason to the model', async ({ countersign, inbox }) => {
  const call = await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await inbox.keyboard.press('d')
  await inbox.getByLabel('Reason, optional').fill('Not before Friday')
  await inbox.keyboard.press('Control+Enter')
  await expect(inbox.getByText('Denied send_email')).toBeVisible()
  expect((await countersign.call(call.id)).refusal).toMatchObject({ kind: 'denied_by_approver', reason: 'Not before Friday' })
})

test('an edit is shown as a difference and runs in place of the original', async ({ countersign, inbox }) => {
  const call = await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await armed(inbox)
  await inbox.keyboard.press('e')
  await inbox.getByLabel('subject').fill('Rent, corrected')
  const changes = inbox.getByRole('region', { name: 'What you change' })
  await expect(changes).toContainText('"Rent"')
  await expect(changes).toContainText('"Rent, corrected"')
  await inbox.getByRole('button', { name: 'Approve the edited call' }).click()
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  expect((await countersign.claim(call.id)).arguments).toEqual({ ...EMAIL.arguments, subject: 'Rent, corrected' })
})

test('what the tool gave along goes back to it as the approver made it', async ({ countersign, inbox }) => {
  const call = await countersign.submit({ tool: 'book_flight', arguments: { to: 'Oslo' }, payload: { seat: '12A', price: 120.5 } })
  await open(inbox, 'book_flight')
  await armed(inbox)
  await inbox.keyboard.press('e')
  await inbox.getByLabel('seat').fill('14C')
  await expect(inbox.getByRole('region', { name: 'What you change in payload' })).toContainText('"14C"')
  await inbox.getByRole('button', { name: 'Approve the edited call' }).click()
  await expect(inbox.getByText('Approved book_flight')).toBeVisible()
  const { arguments: given, payload } = await countersign.claim(call.id)
  expect({ given, payload }).toEqual({ given: { to: 'Oslo' }, payload: { seat: '14C', price: 120.5 } })
})

test('an answer goes to the model in place of a run', async ({ countersign, inbox }) => {
  const call = await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await inbox.keyboard.press('i')
  await inbox.getByLabel('Result').fill('Sent by hand')
  await inbox.getByRole('button', { name: 'Send the answer' }).click()
  await expect(inbox.getByText('Answered send_email')).toBeVisible()
  expect(await countersign.call(call.id)).toMatchObject({ state: 'answered', response: 'Sent by hand' })
})

test('what is remembered is previewed, covers the next call and can be revoked', async ({ countersign, inbox }) => {
  await countersign.submit(EMAIL)
  await open(inbox, 'send_email')
  await armed(inbox)
  await inbox.keyboard.press('r')
  await expect(inbox.getByText(/allow .*send_email/)).toBeVisible()
  await inbox.getByRole('button', { name: 'Approve and remember' }).click()
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  expect((await countersign.submit(EMAIL)).state).toBe('allowed')

  await expect(async () => {
    await inbox.keyboard.press('g')
    await inbox.keyboard.press('g')
    await expect(inbox.getByRole('button', { name: 'Revoke' })).toBeVisible({ timeout: 2000 })
  }).toPass()
  await inbox.getByRole('button', { name: 'Revoke' }).click()
  await inbox.getByRole('button', { name: 'Really revoke' }).click()
  await expect(inbox.getByText('Nothing is remembered')).toBeVisible()
  expect((await countersign.submit(EMAIL)).state).toBe('pending')
})

test('identical calls are one row and are decided together', async ({ countersign, inbox }) => {
  const calls = await Promise.all(['s1', 's2', 's3'].map((session) => countersign.submit({ ...EMAIL, session })))
  await expect(inbox.getByText('× 3')).toBeVisible()
  await open(inbox, 'send_email')
  await inbox.getByRole('button', { name: 'Review together' }).click()
  for (const session of ['s1', 's2', 's3']) await expect(inbox.getByRole('region', { name: 'What differs' })).toContainText(session)
  const approve = inbox.getByRole('button', { name: 'Approve all' })
  await expect(approve).not.toHaveAttribute('aria-disabled', 'true')
  await approve.click()
  await expect(inbox.getByText('Approved 3 calls')).toBeVisible()
  for (const call of calls) expect((await countersign.call(call.id)).state).toBe('approved')
})

test('hundreds of calls are decided together once every difference was on the screen', async ({ countersign, inbox }) => {
  test.setTimeout(120_000)
  const count = 400
  const sessions = Array.from({ length: count }, (_, at) => `s${at % 100}`)
  const calls: string[] = []
  for (let at = 0; at < count; at += 50) {
    const made = await Promise.all(sessions.slice(at, at + 50).map((session) => countersign.submit({ ...EMAIL, session })))
    calls.push(...made.map(({ id }) => id))
  }
  await expect(inbox.getByText(`× ${count}`)).toBeVisible({ timeout: 60_000 })
  await open(inbox, 'send_email')
  await inbox.getByRole('button', { name: 'Review together' }).click()
  await expect(inbox.getByRole('heading', { name: '400 calls together' })).toBeVisible()
  // Four calls of a session differ in nothing that anybody could look at.
  const rows = inbox.getByRole('region', { name: 'What differs' }).getByRole('listitem')
  await expect(rows).toHaveCount(100, { timeout: 60_000 })
  await expect(rows.nth(0)).toContainText('4 calls')
  const approve = inbox.getByRole('button', { name: 'Approve all' })
  await expect(inbox.getByText(/Scroll through all of it/)).toBeVisible()
  await expect(approve).toHaveAttribute('aria-disabled', 'true')
  await seenWhole(inbox, 'The calls in full')
  await expect(approve).not.toHaveAttribute('aria-disabled', 'true')
  await approve.click()
  await expect(inbox.getByText('Approved 400 calls')).toBeVisible({ timeout: 60_000 })
  await expect(inbox.getByText('Nothing waits for you')).toBeVisible()
  for (const call of [calls[0], calls[199], calls[399]]) expect((await countersign.call(call ?? '')).state).toBe('approved')
})

test('everything can be decided without a pointer', async ({ countersign, inbox }) => {
  const first = await countersign.submit({ tool: 'send_email', arguments: { n: 1 } })
  const second = await countersign.submit({ tool: 'send_letter', arguments: { n: 2 } })
  await expect(inbox.getByText('2 pending').first()).toBeVisible()
  await inbox.keyboard.press('j')
  await armed(inbox)
  await inbox.keyboard.press('a')
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  await expect(inbox.getByRole('heading', { name: 'send_letter' })).toBeVisible()
  // Deny has the focus, so Enter opens its form and nothing else.
  await expect(inbox.getByRole('button', { name: 'Deny' })).toBeFocused()
  await inbox.keyboard.press('Enter')
  await inbox.keyboard.type('No letters')
  await inbox.keyboard.press('Control+Enter')
  await expect(inbox.getByText('Denied send_letter')).toBeVisible()
  expect((await countersign.call(first.id)).state).toBe('approved')
  expect((await countersign.call(second.id)).refusal).toMatchObject({ reason: 'No letters' })
})
