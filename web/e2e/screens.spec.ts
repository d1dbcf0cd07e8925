import AxeBuilder from '@axe-core/playwright'
import type { Page } from '@playwright/test'
import { armed, expect, open, seenWhole, test, type Countersign } from './countersign'

const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 360, height: 740 } }
const PLACES = ['sessions', 'history', 'grants', 'doubts', 'policy', 'audit', 'insights']
const FORMS = { a: 'confirm', d: 'deny', e: 'edit', r: 'remember', i: 'answer' }

/** Everybody can use it, it fits, and a picture of it is kept. */
async function check(page: Page, where: string): Promise<void> {
  await page.screenshot({ path: test.info().outputPath(`${where.replaceAll(/\W+/g, '-')}.png`) })
  const { violations } = await new AxeBuilder({ page }).analyze()
  expect(violations.map(({ id, nodes }) => `${where}: ${id} ${nodes[0]?.html}`)).toEqual([])
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${where} is too wide`).toBeLessThanOrEqual(0)
}

async function visit(page: Page, countersign: Countersign, place: string): Promise<void> {
  await page.goto(`${countersign.url}/#/${place}`)
  await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0)
  await check(page, place)
}

/** Something on every screen: what waits, a grant, a doubt, and decisions of both kinds. */
async function fill(countersign: Countersign, inbox: Page): Promise<void> {
  await countersign.doubt({ tool: 'read_file', arguments: { path: '/etc/hosts' } })
  await countersign.submit({ tool: 'send_email', arguments: { to: 'bo@example.com' } })
  await inbox.goto(`${countersign.url}/#/inbox`)
  await open(inbox, 'send_email')
  await seenWhole(inbox)
  await inbox.keyboard.press('r')
  await seenWhole(inbox)
  await inbox.getByRole('button', { name: 'Approve and remember' }).click()
  await expect(inbox.getByText('Approved send_email')).toBeVisible()
  await countersign.submit({ tool: 'send_letter', arguments: { to: 'Bo' } })
  await inbox.goto(`${countersign.url}/#/inbox`)
  await open(inbox, 'send_letter')
  await inbox.keyboard.press('d')
  await inbox.keyboard.press('Control+Enter')
  await expect(inbox.getByText('Denied send_letter')).toBeVisible()
  await countersign.submit({ tool: 'write_file', arguments: { path: '../a', content: 'a\nb' } })
  await expect(inbox.getByRole('button', { name: 'Dismiss' })).toHaveCount(0)
}

/** Two calls that differ, side by side. */
async function batch(countersign: Countersign, inbox: Page): Promise<void> {
  for (const to of ['Oslo', 'Bergen']) await countersign.submit({ tool: 'book_flight', arguments: { to, seats: 2 } })
  await inbox.goto(`${countersign.url}/#/inbox`)
  const boxes = inbox.getByRole('checkbox', { name: 'Select book_flight for a batch' })
  await expect(boxes).toHaveCount(2)
  for (const at of [0, 1]) await boxes.nth(at).check()
  await check(inbox, 'inbox, picked')
  await inbox.getByRole('button', { name: 'Review together' }).click()
  await expect(inbox.getByRole('region', { name: 'What differs' })).toBeVisible()
  await check(inbox, 'batch')
  await inbox.getByRole('button', { name: 'Close' }).click()
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
        await check(inbox, 'inbox')
        await open(inbox, 'transfer_money')
        await seenWhole(inbox)
        await armed(inbox)
        await check(inbox, 'hold')
        for (const [key, form] of Object.entries(FORMS)) {
          await armed(inbox)
          await inbox.keyboard.press(key)
          await inbox.getByRole('form').waitFor()
          await expect(inbox.getByText('Working out the rule')).toHaveCount(0)
          await check(inbox, `hold, ${form}`)
          await inbox.keyboard.press('Escape')
          await inbox.getByRole('button', { name: 'Deny' }).waitFor()
        }
        await batch(countersign, inbox)
        await fill(countersign, inbox)
        for (const place of PLACES) {
          await visit(inbox, countersign, place)
          await expect(inbox.getByText(/^(Nothing is|No )/)).toHaveCount(0)
        }
      })

      test('whoever is signed out is told how to sign in', async ({ countersign, page }) => {
        await page.goto(countersign.url)
        await expect(page.getByRole('heading', { name: 'Sign in to Countersign' })).toBeVisible()
        await check(page, 'sign-in')
      })
    })
  }
}

test('every screen is usable with nothing on it', async ({ countersign, inbox }) => {
  for (const place of PLACES) await visit(inbox, countersign, place)
})

test('the record verifies in the browser', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'read_file', arguments: { path: 'ü\u2028', n: 0.1 } })
  await inbox.goto(`${countersign.url}/#/audit`)
  await inbox.getByRole('button', { name: 'Verify' }).click()
  await expect(inbox.getByText(/events? in \d+ chains? follow from each other/)).toBeVisible()
})

test('the policy explains a call', async ({ countersign, inbox }) => {
  await inbox.goto(`${countersign.url}/#/policy`)
  await inbox.getByLabel('Tool').fill('transfer_money')
  await inbox.getByRole('button', { name: 'Explain' }).click()
  await expect(inbox.getByRole('status').filter({ hasText: 'The policy says' })).toContainText('big-transfers')
})

test('every view has a key', async ({ inbox }) => {
  for (const [key, title] of [['s', 'Sessions'], ['h', 'History'], ['d', 'Doubts'], ['n', 'Insights'], ['i', 'Inbox']] as const) {
    await expect(async () => {
      await inbox.keyboard.press('g')
      await inbox.keyboard.press(key)
      await expect(inbox.getByRole('heading', { name: title })).toBeVisible({ timeout: 2000 })
    }).toPass()
  }
  await inbox.keyboard.press('?')
  await expect(inbox.getByRole('dialog', { name: 'Keyboard' })).toBeVisible()
})

/** Whatever can be clicked can be reached by Tab alone. */
test('every control is reached by the keyboard', async ({ countersign, inbox }) => {
  await countersign.submit({ tool: 'send_email', arguments: { to: 'bo@example.com' } })
  await open(inbox, 'send_email')
  for (const place of ['', ...PLACES]) {
    if (place !== '') await inbox.goto(`${countersign.url}/#/${place}`)
    await expect(inbox.getByRole('status', { name: 'Loading' })).toHaveCount(0)
    const wanted = await inbox.evaluate(() => {
      const controls = [...document.querySelectorAll<HTMLElement>('a[href], button, input, select, textarea, summary')]
      const shown = controls.filter((control) => control.checkVisibility() && !control.matches(':disabled, [tabindex="-1"]'))
      shown.forEach((control, at) => (control.dataset.at = String(at)))
      ;(document.activeElement as HTMLElement | null)?.blur()
      return shown.map((control) => control.outerHTML.slice(0, 80))
    })
    const reached = new Set<string | undefined>()
    for (let press = 0; press < 2 * wanted.length + 10; press += 1) {
      await inbox.keyboard.press('Tab')
      reached.add(await inbox.evaluate(() => (document.activeElement as HTMLElement | null)?.dataset.at))
    }
    expect(wanted.filter((_, at) => !reached.has(String(at))), place).toEqual([])
  }
})
