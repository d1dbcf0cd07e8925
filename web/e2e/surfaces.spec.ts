import { expect, open, test } from './countersign'

/** Facts that the page shows in a place and words of its own. */
const OWN_WORDS: Record<string, RegExp> = {
  agent: /planner.*clerk/,
  server: /bank/,
  risk: /high risk/,
  approvals: /0 of 2 approvals from ann or finance/,
  approvers: /Only people may approve/,
  memory: /Cannot be remembered/,
  'on expiry': /Expiry stops the run/,
  state: /Approve/,
  expires: /\d+:\d\d/,
}
const CANARY = 'hunter2-is-a-canary'

/** The command, the server and the page tell of one hold; terminals have the same check in the tests of the command. */
test('every surface shows the same hold', async ({ countersign, inbox }) => {
  await countersign.submit({
    tool: 'wire_money', server: 'bank', session: 'books', agent: ['planner', 'clerk'], hint: 'this is \u200bharmless',
    arguments: { amount: 100, to: 'Bo\u202e\u001b[2J', password: CANARY, lines: 'one\ntwo' }, payload: { invoice: 'A-17' },
  })
  const [told] = await countersign.holds()
  const { hold, view } = await countersign.hold(told!.id)
  expect({ ...hold, title: told!.title }).toEqual(told)
  await open(inbox, 'wire_money')
  const shown = inbox.getByRole('main')
  for (const { kind, label, text } of view) {
    const words = kind === 'fact' ? OWN_WORDS[label] : undefined
    await expect(shown, `${label}: ${text}`).toContainText(words ?? text)
  }
  const whole = await shown.innerText()
  for (const hidden of [CANARY, '\u202e', '\u200b', '\u001b']) expect(whole).not.toContain(hidden)
})
