import AxeBuilder from '@axe-core/playwright'
import type { Page } from '@playwright/test'
import { expect, open, test } from './countersign'

const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 360, height: 740 } }
const PLACES = ['sessions', 'history', 'grants', 'doubts', 'policy', 'audit', 'insights']

async function check(page: Page, where: string): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).analyze()
  expect(violations.map(({ id, nodes }) => `${where}: ${id} ${nodes[0]?.html}`)).toEqual([])
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${where} is too wide`).toBeLessThanOrEqual(0)
}

for (const [size, viewport] of Object.entries(SIZES)) {
  for (const colorScheme of ['light', 'dark'] as const) {
    test.describe(`${size}, ${colorScheme}`, () => {
      test.use({ viewport, colorScheme, contextOptions: { reducedMotion: 'reduce' } })

      test('every screen is usable by everybody', async ({ countersign, inbox }) => {
        test.setTimeout(240_000)
        await check(inbox, 'empty inbox')
        const definition = { description: 'Moves money', input_schema: { type: 'object', properties: { amount: { type: 'number' } } } }
        await countersign.submit({ tool: 'transfer_money', arguments: { amount: 20_000, to: { name: 'Bo' } }, hint: 'Rent', definition })
        await countersign.submit({ tool: 'edit_file', server: 'files', arguments: { path: 'a', old_text: 'x\ny', new_text: 'x\nz' } })
        await open(inbox, 'transfer_money')
        await check(inbox, 'hold')
        for (const key of ['d', 'e', 'r', 'i']) {
          await inbox.keyboard.press(key)
          await inbox.getByRole('form').waitFor()
          await check(inbox, `hold, ${key}`)
          await inbox.keyboard.press('Escape')
          await inbox.getByRole('button', { name: 'Deny' }).waitFor()
        }
        for (const place of PLACES) {
          await inbox.goto(`${countersign.url}/#/${place}`)
          await expect(inbox.getByRole('status', { name: 'Loading' })).toHaveCount(0)
          await check(inbox, place)
        }
      })
    })
  }
}

test('the record verifies in the browser', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'read_file', arguments: { path: 'ü\u2028', n: 0.1 } })
  await inbox.goto(`${countersign.url}/#/audit`)
  await inbox.getByRole('button', { name: 'Verify' }).click()
  await expect(inbox.getByText(/events in \d+ chains? follow from each other/)).toBeVisible()
})

test('the policy explains a call', async ({ countersign, inbox }) => {
  await inbox.goto(`${countersign.url}/#/policy`)
  await inbox.getByLabel('Tool').fill('transfer_money')
  await inbox.getByRole('button', { name: 'Explain' }).click()
  await expect(inbox.getByRole('status').filter({ hasText: 'The policy says' })).toContainText('big-transfers')
})

test('every view has a key', async ({ inbox }) => {
  for (const [key, title] of [['s', 'Sessions'], ['h', 'History'], ['d', 'Doubts'], ['n', 'Insights'], ['i', 'Inbox']] as const) {
    await inbox.keyboard.press('g')
    await inbox.keyboard.press(key)
    await expect(inbox.getByRole('heading', { name: title })).toBeVisible()
  }
  await inbox.keyboard.press('?')
  await expect(inbox.getByRole('dialog', { name: 'Keyboard' })).toBeVisible()
})
