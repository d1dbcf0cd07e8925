"""Who asks, and for what: every operation is called by a role that may, every other time about something that is there."""

import json
import os

import requests
import schemathesis

URL = os.environ["COUNTERSIGN_URL"]
TOKENS = json.loads(os.environ["COUNTERSIGN_TOKENS"])


def ask(role, method, path, **rest):
    headers = {"Authorization": f"Bearer {TOKENS[role]}", "Content-Type": "application/json"}
    answer = requests.request(method, URL + path, headers=headers, timeout=30, **rest)
    answer.raise_for_status()
    return answer.json()


def submit(tool):
    body = {"session": "s", "tool": tool, "arguments": {"path": "a.txt"}}
    return ask("agent", "POST", "/v1/calls", data=json.dumps(body))


def known():
    """Ids that lead somewhere, by the first part of their routes."""
    held, allowed = [submit("write_file") for _ in range(8)], [submit("read_file") for _ in range(8)]
    token = ask("operator", "POST", "/v1/tokens", data=json.dumps({"role": "auditor", "name": "eve"}))
    return {
        "calls": [call["id"] for call in held + allowed],
        "holds": [call["holds"][0]["id"] for call in held],
        "tokens": [token["id"]],
        "sessions": sessions(),
    }


def sessions():
    """Sessions that wait for their client to run a tool."""
    names = [f"known-{n}" for n in range(4)]
    for name in names:
        body = {"agent": "guide", "session": name, "message": "Where am I?"}
        ask("agent", "POST", "/v1/sessions", data=json.dumps(body))
    return names


KNOWN = known()
TURN = {}


@schemathesis.hook
def map_path_parameters(context, parameters):
    if not parameters or "id" not in parameters:
        return parameters
    path = context.operation.path
    turn = TURN[path] = TURN.get(path, 0) + 1
    ids = KNOWN.get(path.split("/")[2])
    # The rest are made up, and must be told from those that are there without a fault.
    if ids and turn % 2 == 0:
        parameters["id"] = ids[turn // 2 % len(ids)]
    return parameters


@schemathesis.hook
def map_body(context, body):
    # Every other session is begun with an agent that is there.
    if context.operation.path == "/v1/sessions" and isinstance(body, dict) and "agent" in body:
        turn = TURN["begin"] = TURN.get("begin", 0) + 1
        if turn % 2 == 0:
            body["agent"] = "guide"
    return body


@schemathesis.hook
def before_call(context, case, kwargs):
    # Whoever asks to wait, waits: a second shows as much as a minute.
    wait = str((case.query or {}).get("wait", ""))
    if wait.isdecimal() and 1 < int(wait) < 2**32:
        case.query["wait"] = 1
    words = case.operation.definition.raw.get("description", "")
    roles = words.removeprefix("Roles: ").rstrip(".").split(", ")
    token = next((TOKENS[role] for role in roles if role in TOKENS), None)
    if token:
        case.headers["Authorization"] = f"Bearer {token}"
