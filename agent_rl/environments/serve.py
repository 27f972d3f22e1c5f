"""The program that runs a package's environments in the package's own Python, and reads one JSON line per request.

`served.py` starts this program as `python -I serve.py FILE`. FILE is a module of `agent_rl.environments.families`,
which defines `start()`, `describe(id)`, `rows(id, split, seed)` and the class `Session`. agent_rl is not installed in
the package's Python, so a family imports only this module of agent_rl.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any, TypeVar

Value = TypeVar("Value")
START_S = 15.0
"""Maximum number of seconds that a web server may take to start."""


class CallError(Exception):
    """An error in a call, which the policy may read."""


def of_split(values: Iterable[Value], split: str) -> list[Value]:
    """Return the values that belong to a split; every fourth value belongs to `test`."""
    return [value for number, value in enumerate(values) if (number % 4 == 3) == (split == "test")]


def on_loopback(app: Any) -> str:
    """Serve an ASGI application in a thread of this process, and return its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    deadline = time.monotonic() + START_S
    while not server.started:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server has not started within {START_S:g} s")
        time.sleep(0.01)
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def answer(
    family: Any, sessions: dict[str, Any], key: str | None, method: str, arguments: list[Any], ended: list[str]
) -> list[Any]:
    """Return `["result", value]`, or `["lost"]` if this process does not have the session.

    Args:
        family: the family's module.
        sessions: the `Session` of each trajectory by its key.
        key: the session's key; None means that the method is a function of the family.
        method: `open` for a new session, or the name of a method of the session or the family.
        arguments: the arguments for the method.
        ended: keys of sessions that are no longer needed.
    """
    for name in ended:
        if close := getattr(sessions.pop(name, None), "close", None):
            close()
    if key is None:
        return ["result", getattr(family, method)(*arguments)]
    if method == "open":
        sessions[key] = family.Session(*arguments)
        return ["result", sessions[key].text]
    return ["result", getattr(sessions[key], method)(*arguments)] if key in sessions else ["lost"]


def _raised(error: Exception) -> list[Any]:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return ["raised", type(error).__name__, str(error), f"{frame.filename}:{frame.lineno}"]


def main() -> None:
    """Answer the requests on standard input until the input ends; the family's own output is sent to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.modules["agent_rl.environments.serve"] = sys.modules["__main__"]
    problem: list[Any] | None = None
    sessions: dict[str, Any] = {}
    try:
        spec: Any = importlib.util.spec_from_file_location("family", sys.argv[1])
        family = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(family)
        family.start()
    except Exception as error:  # noqa: BLE001 - every request gets the error as its answer
        problem = _raised(error)
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        try:
            reply = problem or answer(family, sessions, *json.loads(line))
        except Exception as error:  # noqa: BLE001 - the error is raised in the process that sent the request
            reply = _raised(error)
        print(json.dumps(reply, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
