import { defineConfig } from '@playwright/test'

/** The real program, a real store and a real browser: `COUNTERSIGN_BIN` names the first, Chromium of the system is the last. */
export default defineConfig({
  testDir: 'e2e',
  // Each test starts its own server; two at once are enough for one machine.
  workers: 2,
  timeout: 90_000,
  expect: { timeout: 20_000 },
  reporter: 'list',
  use: {
    viewport: { width: 1440, height: 900 },
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run'],
    },
  },
})
