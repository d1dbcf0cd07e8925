"""Calls one tool with the Python SDK, again where it is told to.

client.py TOOL ARGUMENTS -- COMMAND...
client.py TOOL ARGUMENTS -- URL legacy|auto ANSWER

ANSWER is what a form is answered with: a decision, or `none` for a client that cannot ask its user. TOKEN lets it in.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

asked = []


def connect(words: list[str]) -> Client:
    if not words[0].startswith("http"):
        return Client(stdio_client(StdioServerParameters(command=words[0], args=words[1:])))
    url, mode, answer = words

    async def elicited(_context, params) -> ElicitResult:
        asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        content = {"decision": answer} if asked[-1].get("mode") == "form" else None
        return ElicitResult(action="accept", content=content)

    token = os.environ.get("TOKEN")
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"} if token else {}, timeout=httpx2.Timeout(60))
    callback = None if answer == "none" else elicited
    return Client(streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=callback)


async def main() -> None:
    tool, arguments, _, *words = sys.argv[1:]
    async with connect(words) as client:
        tools = (await client.list_tools()).tools
        calls = 0
        while True:
            calls += 1
            result = (await client.call_tool(tool, json.loads(arguments))).model_dump(mode="json", by_alias=True, exclude_none=True)
            if not result["content"] or not result["content"][0].get("text", "").startswith("Not run yet"):
                break
    print(json.dumps({"tools": [tool.name for tool in tools], "result": result, "calls": calls, "asked": asked}))


asyncio.run(main())
