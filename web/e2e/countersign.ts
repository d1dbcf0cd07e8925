/** A server of its own for each test, an agent that submits to it, and a browser that is signed in. */
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test as base, type Browser, type Page } from '@playwright/test'

const DANGER = '--dangerously-run-tools-as-server'
const DANGEROUS = 'server: { dangerously_run_tools_as_server: true }\n'
const POLICY = `
policy:
  otherwise: ask
  expires_after: 10m
  rules:
    - { id: reads, allow: "read_*" }
    - { id: big-transfers, ask: transfer_money, risk: high, reason: Transfers need a second look }
    - { id: production, ask: deploy, risk: critical, reason: This reaches production }
    - { id: hurry, ask: hurry, expires_after: 15s }
    - { id: two-people, ask: sign_contract, approvals: 2 }
    - { id: terms, ask: bank/wire_money, risk: high, reason: Two people look at it, approvals: 2, from: [finance, ann], human: required, remember: none, on_expired: stop_run }
redact: { keys: ["*password*"] }
limits: { pending_per_session: 20000, pending_per_agent: 20000, submits_per_second: 100000 }
`

/** Agents that the server runs: a banker who gives the transfer to a clerk, and the client moves the money; a scribe. */
const AGENTS = `
model: { provider: scripted, name: script.yml }
tools: [{ name: send_rent, description: Moves money., run: { client: true } }]
agents:
  banker: { instructions: You help with the bank., sub_agents: [clerk] }
  clerk: { instructions: You move money., tools: [send_rent] }
  scribe: { instructions: You take notes., tools: [write_file] }
`
const SCRIPT = `
agents:
  banker: [{ text: I ask the clerk., calls: [{ tool: ask_clerk, arguments: { task: Send 900 to Bo } }] }, { text: The rent is sent. }]
  clerk: [{ text: I send it., calls: [{ tool: send_rent, arguments: { to: Bo, amount: 900 } }] }, { text: Bo has it. }]
  scribe: [
    { calls: [{ tool: write_file, arguments: { path: notes/one.txt, content: one } }] },
    { calls: [{ tool: write_file, arguments: { path: notes/two.txt, content: two } }] },
    { text: Both are written. },
  ]
`
/** An agent with the tools of an MCP server, which the file `tools.json` describes. */
const MCP = (folder: string) => `
model: { provider: scripted, name: script.yml }
agents: { filer: { mcp_servers: [files] } }
mcp_servers: { files: { command: ${JSON.stringify(process.execPath)}, args: ${JSON.stringify([FIXTURE, join(folder, 'tools.json')])} } }
`
const FIXTURE = fileURLToPath(new URL('mcp-server.mjs', import.meta.url))
const FILES = { write_file: 'Writes a file.', read_file: 'Reads a file.', list_files: 'Lists the files of a folder.' }
const TASKS = '    - { id: tasks, allow: "agent:*" }'

/** What an agent submits. */
export type NewCall = { tool: string; arguments: unknown; session?: string; server?: string; hint?: string; payload?: unknown; definition?: unknown; agent?: string[] }
export type Tool = { server: string; name: string; state: 'new' | 'changed' | 'accepted'; definition: string; difference?: string; accepted_by?: string }
/** What a server has: nothing but its rules, agents that talk, the tools of an MCP server, or no leave to run tools itself. */
export type Setting = 'rules' | 'agents' | 'mcp' | 'careful'
export type Call = { id: string; state: string; arguments: unknown; refusal: { kind: string; reason?: string } | null; response: unknown }

export class Countersign {
  private readonly tokens = new Map<string, string>()

  private constructor(
    private readonly folder: string,
    private process: ChildProcess,
    readonly url: string,
    readonly link: string,
    private readonly token: string,
  ) {}

  static async start(setting: Setting = 'rules'): Promise<Countersign> {
    const folder = await mkdtemp(join(tmpdir(), 'countersign-e2e-'))
    const talking = POLICY.replace('  rules:', `  rules:\n${TASKS}`) + AGENTS
    const configs = { rules: DANGEROUS + POLICY, agents: DANGEROUS + talking, mcp: DANGEROUS + POLICY + MCP(folder), careful: POLICY }
    await writeFile(join(folder, 'countersign.yml'), configs[setting])
    await writeFile(join(folder, 'script.yml'), SCRIPT)
    await describe(folder, FILES)
    await mkdir(join(folder, 'work', 'notes'), { recursive: true })
    const { process, url, sign_in } = await serve(folder, '127.0.0.1:0', setting === 'careful' ? [] : [DANGER])
    const { token } = await command<{ token: string }>(folder, ['token', 'create', '--role', 'agent', '--name', 'bank-bot'])
    return new Countersign(folder, process, url, sign_in, token)
  }

  /** A link that signs another person in, who may approve, or do what else is said. */
  async linkFor(name: string, role = 'approver'): Promise<string> {
    await command(this.folder, ['user', 'add', name, '--role', role])
    return (await command<{ sign_in: string }>(this.folder, ['user', 'link', name, '--url', this.url])).sign_in
  }

  /** Runs a command on the same store from another home, and so with another key. */
  async neighbour(words: string[]): Promise<void> {
    const home = join(this.folder, 'neighbour')
    await mkdir(home, { recursive: true, mode: 0o700 })
    await promisify(execFile)(program(), [...words, ...place(this.folder)], surroundings(home))
  }

  /** Lets the MCP server describe a tool in other words. */
  describe(tool: keyof typeof FILES, words: string): Promise<void> {
    return describe(this.folder, { ...FILES, [tool]: words })
  }

  /** The tools of MCP servers as an operator finds them. */
  async tools(): Promise<Tool[]> {
    return (await this.as<{ items: Tool[] }>('operator', 'GET', '/v1/tools')).items
  }

  /** The tool once the server has found it in this state. */
  async tool(name: keyof typeof FILES, state: Tool['state']): Promise<Tool> {
    for (;;) {
      const found = (await this.tools()).find((tool) => tool.name === name && tool.state === state)
      if (found) return found
      await delay(100)
    }
  }

  async accept({ server, name, definition }: Tool): Promise<void> {
    await this.as('operator', 'POST', '/v1/tools/accept', { server, tool: name, definition })
  }

  /** What the command tells of the holds that wait, and the server of one of them. */
  holds(): Promise<{ id: string; [member: string]: unknown }[]> {
    return command(this.folder, ['holds'])
  }

  hold(id: string): Promise<{ hold: object; view: { kind: string; label: string; text: string }[] }> {
    return this.as('approver', 'GET', `/v1/holds/${id}`)
  }

  async submit(call: NewCall): Promise<Call> {
    return this.ask('POST', '/v1/calls', { session: 'books', agent: ['banker'], ...call })
  }

  call(id: string): Promise<Call> {
    return this.ask('GET', `/v1/calls/${id}`)
  }

  claim(id: string): Promise<{ arguments: unknown; payload: unknown; fence: number }> {
    return this.ask('POST', `/v1/calls/${id}/claim`, {})
  }

  /** The same as text, in which numbers keep their spelling. */
  async claimText(id: string): Promise<string> {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' }
    return (await fetch(`${this.url}/v1/calls/${id}/claim`, { method: 'POST', headers, body: '{}' })).text()
  }

  /** Makes a call that begins and whose end nobody saw. */
  async doubt(call: NewCall): Promise<string> {
    const { id } = await this.submit(call)
    const { fence } = await this.claim(id)
    await this.ask('POST', `/v1/calls/${id}/outcome`, { outcome: 'may_have_applied', fence })
    return id
  }

  /** Begins a session with an agent that the server runs. */
  begin(session: { agent: string; session: string; message: string }): Promise<unknown> {
    return this.ask('POST', '/v1/sessions', session)
  }

  say(session: string, text: string): Promise<unknown> {
    return this.ask('POST', `/v1/sessions/${session}/messages`, { text })
  }

  /** Waits for the call that the client is to run. */
  async clientCall(session: string): Promise<string> {
    for (;;) {
      type Detail = { status: { client_calls: { call: string }[] } }
      const { status } = await this.ask<Detail>('GET', `/v1/sessions/${session}`)
      if (status.client_calls[0]) return status.client_calls[0].call
      await delay(100)
    }
  }

  /** Runs a call at the client. */
  async give(session: string, call: string, output: unknown): Promise<void> {
    const { fence } = await this.claim(call)
    await this.ask('POST', `/v1/sessions/${session}/tool-results`, { call, fence, output })
  }

  /** Ends the server as a crash would, and starts another on the same store and address. */
  async crash(): Promise<void> {
    this.process.kill('SIGKILL')
    await once(this.process, 'exit')
  }

  async restart(): Promise<void> {
    this.process = (await serve(this.folder, new URL(this.url).host)).process
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.crash()
    await rm(this.folder, { recursive: true, force: true })
  }

  /** Asks with a token of another role, made when it is first wanted. */
  private async as<T>(role: string, method: string, path: string, body?: unknown): Promise<T> {
    const made = this.tokens.get(role) ?? (await command<{ token: string }>(this.folder, ['token', 'create', '--role', role, '--name', `test-${role}`])).token
    this.tokens.set(role, made)
    return this.ask(method, path, body, made)
  }

  private async ask<T>(method: string, path: string, body?: unknown, token = this.token): Promise<T> {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const answer = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : text })
    if (answer.status === 429) {
      // A good agent waits as long as it is told.
      await delay(1000 * Number(answer.headers.get('retry-after') ?? 1))
      return this.ask(method, path, body, token)
    }
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
    return (await answer.json()) as T
  }
}

function program(): string {
  const program = process.env.COUNTERSIGN_BIN
  if (!program) throw new Error('set COUNTERSIGN_BIN to the countersign program, built with the web page')
  return program
}

function place(folder: string): string[] {
  return ['--config', join(folder, 'countersign.yml'), '--store', `sqlite:${join(folder, 'store.db')}`]
}

function surroundings(folder: string): { env: NodeJS.ProcessEnv } {
  return { env: { PATH: process.env.PATH, HOME: folder } }
}

async function command<T>(folder: string, words: string[]): Promise<T> {
  const { stdout } = await promisify(execFile)(program(), [...words, '--json', ...place(folder)], surroundings(folder))
  return JSON.parse(stdout) as T
}

/** Puts the file in its place whole: the server may be reading it. */
async function describe(folder: string, tools: Record<string, string>): Promise<void> {
  const listed = Object.entries(tools).map(([name, description]) => ({ name, description, inputSchema: { type: 'object' } }))
  await writeFile(join(folder, 'tools.new'), JSON.stringify(listed))
  await rename(join(folder, 'tools.new'), join(folder, 'tools.json'))
}

async function serve(folder: string, listen: string, flags = [DANGER]): Promise<{ process: ChildProcess; url: string; sign_in: string }> {
  // The tools of agents work in a folder of the test's own, as its own user.
  const child = spawn(program(), ['serve', '--json', '--no-open', ...flags, '--listen', listen, ...place(folder)], {
    ...surroundings(folder),
    cwd: join(folder, 'work'),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  for await (const line of createInterface({ input: child.stdout })) {
    return { process: child, ...(JSON.parse(line) as { url: string; sign_in: string }) }
  }
  throw new Error('the server ended before it listened')
}

export const test = base.extend<{ countersign: Countersign; inbox: Page }>({
  countersign: async ({}, use) => {
    const countersign = await Countersign.start()
    await use(countersign)
    await countersign.stop()
  },
  /** The inbox, signed in by the printed link. Errors and refused scripts or styles fail the test. */
  inbox: async ({ countersign, page }, use) => {
    const errors: string[] = []
    page.on('pageerror', (error) => errors.push(error.message))
    page.on('console', (message) => /Content.Security|TrustedHTML/i.test(message.text()) && errors.push(message.text()))
    await page.goto(countersign.link)
    await expect(page.getByRole('heading', { name: 'Inbox' })).toBeVisible()
    await use(page)
    expect(errors).toEqual([])
  },
})

/** The same, with a server in another setting. */
const within = (setting: Setting) =>
  test.extend({
    countersign: async ({}, use) => {
      const countersign = await Countersign.start(setting)
      await use(countersign)
      await countersign.stop()
    },
  })

export const talking = within('agents')
export const pinning = within('mcp')
export const careful = within('careful')

/** Opens the hold of a tool and waits for its facts. */
export async function open(page: Page, tool: string): Promise<void> {
  await page.getByRole('region', { name: 'List of holds' }).getByRole('button', { name: tool }).first().click()
  await expect(page.getByRole('region', { name: 'What will run' })).toBeVisible()
}

/** Looks at all of the hold, or of a batch, as approve demands. */
export async function seenWhole(page: Page, name = 'The hold in full'): Promise<void> {
  await page.getByRole('region', { name }).evaluate(async (view) => {
    for (let top = 0; top < view.scrollHeight; top += view.clientHeight * 0.8) {
      view.scrollTo(0, top)
      await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))
    }
  })
}

/** Waits until approve would work. */
export async function armed(page: Page): Promise<void> {
  await expect(page.getByRole('button', { name: 'Approve', exact: true })).not.toHaveAttribute('aria-disabled', 'true')
}

/** The inbox of another person, in a browser of their own. */
export async function inboxOf(browser: Browser, countersign: Countersign, name: string): Promise<Page> {
  const page = await (await browser.newContext()).newPage()
  await page.goto(await countersign.linkFor(name))
  await expect(page.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  return page
}

export { expect }
