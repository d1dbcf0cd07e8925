// Calls one tool with a TypeScript SDK: client.mjs PACKAGES client|sdk TOOL ARGUMENTS -- COMMAND...
import { createRequire } from "node:module";

const [packages, generation, tool, args, , command, ...rest] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const [main, stdio] = generation === "sdk"
  ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js"]
  : ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"];
const { Client } = require(main);
const { StdioClientTransport } = require(stdio);

const client = new Client({ name: "countersign-tests", version: "1" });
await client.connect(new StdioClientTransport({ command, args: rest }));
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), result }));
await client.close();
