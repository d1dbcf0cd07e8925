/// <reference types="vitest/config" />
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

/** Where `countersign serve` listens while one works on the page with `npm run dev`. */
const server = process.env.COUNTERSIGN_URL ?? 'http://127.0.0.1:7117'

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The first browsers that know `light-dark()`.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    // The policy of the page allows files of our own server only, so nothing may be inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { '/v1': { target: server, changeOrigin: true }, '/openapi.json': server } },
  resolve: process.env.VITEST ? { conditions: ['browser'] } : undefined,
  // A busy machine takes its time to load modules; that is no failure.
  test: { include: ['src/**/*.test.ts'], environment: 'happy-dom', testTimeout: 60_000 },
})
