import { armed, expect, open, seenWhole, talking as test } from './countersign'

test('a session that the server runs is shown as it happens, with its holds in their place', async ({ countersign, inbox }) => {
  await countersign.begin({ agent: 'banker', session: 'rent', message: 'send the rent' })
  await inbox.goto(`${countersign.url}/#/sessions`)
  await inbox.getByRole('link', { name: /rent/ }).click()
  const transcript = inbox.getByRole('list', { name: 'Transcript' })
  await expect(transcript.getByText('send the rent', { exact: true })).toBeVisible()
  await expect(transcript.getByText('I ask the clerk.')).toBeVisible()
  await expect(transcript.getByText('Task to')).toContainText('clerk')
  await expect(inbox.getByRole('status', { name: 'How the session stands' })).toContainText('waiting')
  await inbox.screenshot({ path: test.info().outputPath('waiting.png') })

  await transcript.getByRole('link', { name: 'Open the hold' }).click()
  await armed(inbox)
  await inbox.keyboard.press('a')
  const waiting = await countersign.clientCall('rent')
  await inbox.goto(`${countersign.url}/#/sessions/${encodeURIComponent('bank-bot/rent')}`)
  await expect(inbox.getByText('Its client is to run send_rent.')).toBeVisible()
  await expect(transcript.getByText('Waits for a decision')).toHaveCount(0)
  await countersign.give('rent', waiting, 'sent')
  await expect(transcript.getByText('The rent is sent.')).toBeVisible()
  await expect(inbox.getByRole('status', { name: 'How the session stands' })).toContainText('idle')
})

test('a session is followed over the end of the server', async ({ countersign, inbox }) => {
  await countersign.begin({ agent: 'banker', session: 'rent', message: 'send the rent' })
  await inbox.goto(`${countersign.url}/#/sessions/${encodeURIComponent('bank-bot/rent')}`)
  const transcript = inbox.getByRole('list', { name: 'Transcript' })
  await expect(transcript.getByText('Waits for a decision')).toBeVisible()
  await countersign.crash()
  await countersign.restart()
  await countersign.say('rent', 'thank you')
  await expect(inbox.getByText('1 message waits')).toBeVisible({ timeout: 60_000 })
  await expect(transcript.getByText('I ask the clerk.')).toHaveCount(1)
})

test('a call can be remembered for its folder', async ({ countersign, inbox }) => {
  await countersign.begin({ agent: 'scribe', session: 'notes', message: 'write them down' })
  await open(inbox, 'write_file')
  await seenWhole(inbox)
  await armed(inbox)
  await inbox.keyboard.press('r')
  const which = inbox.getByLabel('Which calls')
  await which.selectOption((await which.locator('option', { hasText: 'notes' }).textContent()) ?? '')
  await expect(inbox.getByText(/allow write_file whenever path leads into .*notes, in session notes/)).toBeVisible()
  await inbox.getByRole('button', { name: 'Approve and remember' }).click()
  await inbox.goto(`${countersign.url}/#/sessions/${encodeURIComponent('bank-bot/notes')}`)
  // The second file is in the same folder, so nobody is asked about it.
  await expect(inbox.getByText('Both are written.')).toBeVisible()
})

for (const [size, viewport] of Object.entries({ desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 800 } })) {
  for (const colorScheme of ['light', 'dark'] as const) {
    test.describe(`${size}, ${colorScheme}`, () => {
      test.use({ viewport, colorScheme, contextOptions: { reducedMotion: 'reduce' } })

      test('a transcript fits the screen', async ({ countersign, inbox }) => {
        await countersign.begin({ agent: 'banker', session: 'rent', message: 'send the rent' })
        await inbox.goto(`${countersign.url}/#/sessions/${encodeURIComponent('bank-bot/rent')}`)
        await expect(inbox.getByText('Waits for a decision')).toBeVisible()
        expect(await inbox.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0)
        await inbox.screenshot({ path: test.info().outputPath('transcript.png') })
      })
    })
  }
}
