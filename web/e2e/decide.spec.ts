import { armed, expect, open, test } from './countersign'

const EMAIL = { tool: 'send_email', arguments: { to: 'bo@example.com', subject: 'Rent' } }

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

  await inbox.keyboard.press('g')
  await inbox.keyboard.press('g')
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
