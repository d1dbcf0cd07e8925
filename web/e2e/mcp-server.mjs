/** A small MCP server over pipes. It lists the tools that a file names, and says so whenever that file changes. */
import { readFileSync, watchFile } from 'node:fs'
import { createInterface } from 'node:readline'

const [, , file] = process.argv
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)

const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: 'files', version: '1' } }),
  'tools/list': () => ({ tools: JSON.parse(readFileSync(file, 'utf8')) }),
  ping: () => ({}),
}

watchFile(file, { interval: 100 }, () => say({ method: 'notifications/tools/list_changed' }))
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) continue
  const answer = answers[method]
  say(answer ? { id, result: answer(params) } : { id, error: { code: -32601, message: 'there is no such method' } })
}
process.exit()
