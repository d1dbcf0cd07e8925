import { armed, expect, open, test } from './countersign'

test('a doubt is settled with a reason', async ({ countersign, inbox }) => {
  const call = await countersign.doubt({ tool: 'read_file', arguments: { path: 'a' } })
  await inbox.goto(`${countersign.url}/#/doubts`)
  await inbox.getByLabel('What happened').selectOption('It was applied')
  await inbox.getByLabel('How do you know?').fill('The file is there')
  await inbox.getByRole('button', { name: 'Settle' }).click()
  await expect(inbox.getByText('No doubts')).toBeVisible()
  expect((await countersign.call(call)).state).toBe('resolved')
})

test('insights name the rule that would have saved prompts', async ({ countersign, inbox }) => {
  for (const n of [1, 2, 3]) {
    await countersign.submit({ tool: 'send_email', arguments: { n } })
    await open(inbox, 'send_email')
    await armed(inbox)
    await inbox.keyboard.press('a')
    await expect(inbox.getByText('Nothing waits for you')).toBeVisible()
  }
  await inbox.goto(`${countersign.url}/#/insights`)
  await expect(inbox.getByText('allow: send_email')).toBeVisible()
  await expect(inbox.getByRole('list', { name: 'How long people took' })).toContainText('under 5 s')
})

test('history finds a call by what it was given', async ({ countersign, inbox }) => {
  for (const to of ['Oslo', 'Bergen']) await countersign.submit({ tool: 'book_flight', arguments: { to } })
  await inbox.goto(`${countersign.url}/#/history`)
  await expect(inbox.getByRole('button', { name: /book_flight/ })).toHaveCount(2)
  await inbox.getByLabel('Search calls').fill('bergen')
  await expect(inbox.getByRole('button', { name: /book_flight/ })).toHaveCount(1)
  await inbox.getByRole('button', { name: /Bergen/ }).click()
  await expect(inbox.getByText('People were asked')).toBeVisible()
})

test('the record is verified in the browser, whoever signed it on the same store', async ({ countersign, inbox }) => {
  await countersign.neighbour(['halt'])
  await countersign.neighbour(['resume'])
  await inbox.goto(`${countersign.url}/#/audit`)
  await inbox.getByRole('button', { name: 'Verify' }).click()
  const proof = inbox.getByRole('status').filter({ hasText: 'follow from each other' })
  await expect(proof).toContainText(/signed checkpoints? confirms? them/)
  await expect(proof).not.toContainText('A key that is not this server’s')
})
