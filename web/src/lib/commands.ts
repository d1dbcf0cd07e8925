/** Who carries out a command now: the part of the page that registered last. */
import { isTyping, Keyboard, type Command } from './keys'

type Handlers = Partial<Record<Command, () => void>>

const layers: Handlers[] = []

/** Registers handlers until the returned function is called. */
export function onCommands(handlers: Handlers): () => void {
  layers.push(handlers)
  return () => void layers.splice(layers.indexOf(handlers), 1)
}

/** Carries out a command; false where nobody does. */
export function run(command: Command): boolean {
  const handler = layers.findLast((layer) => layer[command])?.[command]
  handler?.()
  return handler !== undefined
}

/** Listens to the keyboard of the page. */
export function listen(): () => void {
  const keyboard = new Keyboard()
  const heard = (event: KeyboardEvent) => {
    // SECURITY: a page out of sight, and a dialog above the page, take no key that decides.
    if (event.isComposing || document.visibilityState !== 'visible' || document.querySelector('dialog[open]')) return
    if (isTyping(event.target) && event.key !== 'Escape') return
    const { key, ctrlKey, metaKey, altKey, repeat, timeStamp } = event
    const command = keyboard.read({ key, ctrlKey, metaKey, altKey, repeat, at: timeStamp })
    if (command && run(command)) event.preventDefault()
  }
  addEventListener('keydown', heard)
  return () => removeEventListener('keydown', heard)
}
