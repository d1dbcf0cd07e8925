import { expect, it } from 'vitest'
import { link, linkIn, read, router } from './router.svelte'

it.each([
  ['', 'inbox', undefined],
  ['#/inbox/hold_1', 'inbox', 'hold_1'],
  ['#/sessions/bot%2Fa%20b', 'sessions', 'bot/a b'],
  ['#/nowhere', 'inbox', undefined],
  ['#/sessions/%', 'sessions', '%'],
])('reads %s', (hash, place, id) => expect(read(hash)).toMatchObject({ place, id }))

it('reads back what it links to', () => {
  for (const id of ['a/b', '%', '?x=1', '#', 'ü']) expect(read(link('sessions', id)).id).toBe(id)
})

it('knows a sign-in link from a place', () => {
  expect(linkIn('#cs_link_abc')).toBe('cs_link_abc')
  expect(linkIn('#/inbox')).toBeUndefined()
  expect(linkIn('')).toBeUndefined()
})

it('knows where it is before the word of a change has come', () => {
  router.replace('inbox', 'hold_1')
  expect(router.isAt('inbox', 'hold_1')).toBe(true)
  location.hash = link('insights')
  expect(router.route.place).toBe('inbox')
  expect(router.isAt('inbox', 'hold_1')).toBe(false)
})
