"""Calls one tool with the Python SDK: client.py TOOL ARGUMENTS -- COMMAND..."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    tool, arguments, _, command, *rest = sys.argv[1:]
    async with Client(stdio_client(StdioServerParameters(command=command, args=rest))) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool(tool, json.loads(arguments))
    told = {"tools": [tool.name for tool in tools], "result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
    print(json.dumps(told))


asyncio.run(main())
