// Calls one tool with a TypeScript SDK, again where it is told to:
//   client.mjs PACKAGES client|sdk TOOL ARGUMENTS -- COMMAND...
//   client.mjs PACKAGES client|sdk TOOL ARGUMENTS -- URL legacy|auto ANSWER
// ANSWER is what a form is answered with: a decision, or `none` for a client that cannot ask its user. TOKEN lets it in.
import { createRequire } from "node:module";

const [packages, generation, tool, args, , ...words] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const isFirst = generation === "sdk";
const part = (first, second) => require(isFirst ? `@modelcontextprotocol/sdk/${first}` : `@modelcontextprotocol/${second}`);
const { Client } = part("client/index.js", "client");

const asked = [];
const [target, mode, answer] = words;
const isUrl = target.startsWith("http");
const canAsk = isUrl && answer !== "none";
const client = new Client({ name: "countersign-tests", version: "1" }, {
  capabilities: canAsk ? { elicitation: { form: {}, url: {} } } : {},
  ...(isUrl && mode === "auto" && !isFirst ? { versionNegotiation: { mode: "auto" } } : {}),
});
if (canAsk) {
  const method = isFirst ? require("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema : "elicitation/create";
  client.setRequestHandler(method, async ({ params }) => {
    asked.push(params);
    return params.mode === "url" ? { action: "accept" } : { action: "accept", content: { decision: answer } };
  });
}
if (isUrl) {
  const { StreamableHTTPClientTransport } = part("client/streamableHttp.js", "client");
  const headers = process.env.TOKEN ? { authorization: `Bearer ${process.env.TOKEN}` } : {};
  await client.connect(new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } }));
} else {
  const { StdioClientTransport } = part("client/stdio.js", "client/stdio");
  await client.connect(new StdioClientTransport({ command: target, args: words.slice(1) }));
}
const { tools } = await client.listTools();
let [calls, result] = [0, undefined];
do {
  calls += 1;
  result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
} while (result.content?.[0]?.text?.startsWith("Not run yet"));
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), result, calls, asked }));
await client.close();
