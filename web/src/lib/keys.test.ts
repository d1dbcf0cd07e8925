import { expect, it } from 'vitest'
import { BINDINGS, Keyboard, type Press } from './keys'

const press = (key: string, at = 0, more: Partial<Press> = {}): Press =>
  ({ key, at, ctrlKey: false, metaKey: false, altKey: false, repeat: false, ...more })

it('knows every binding by its keys', () => {
  for (const { keys, command } of BINDINGS) {
    const keyboard = new Keyboard()
    expect(keys.map((key, at) => keyboard.read(press(key, at * 10))).at(-1), command).toBe(command)
  }
})

it('binds no keys twice', () => {
  const all = BINDINGS.map(({ keys }) => keys.join(' '))
  expect(new Set(all).size).toBe(all.length)
})

/** A key that was meant as the second of a pair never decides. */
it.each(['x', 'j', 'e', 'r'])('drops %s after a g that it does not follow', (key) => {
  const keyboard = new Keyboard()
  expect(keyboard.read(press('g'))).toBeUndefined()
  expect(keyboard.read(press(key, 10))).toBeUndefined()
})

it('forgets the first key of a pair after a second', () => {
  const keyboard = new Keyboard()
  keyboard.read(press('g'))
  expect(keyboard.read(press('d', 1500))).toBe('deny')
})

it('repeats only what moves while a key is held', () => {
  const keyboard = new Keyboard()
  expect(keyboard.read(press('j', 0, { repeat: true }))).toBe('next')
  for (const key of ['a', 'd', 'e', 'r', 'x']) expect(keyboard.read(press(key, 0, { repeat: true }))).toBeUndefined()
})

it('leaves the keys of browser and system alone', () => {
  const keyboard = new Keyboard()
  expect(keyboard.read(press('a', 0, { ctrlKey: true }))).toBeUndefined()
  expect(keyboard.read(press('d', 0, { metaKey: true }))).toBeUndefined()
})
