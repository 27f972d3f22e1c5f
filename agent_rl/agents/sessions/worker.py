"""Imports a Python function once, and calls it in a fork for each episode: `python worker.py FILE.py:NAME DESCRIPTOR`.

DESCRIPTOR is the file descriptor of a Unix socket. The worker writes `IMPORTED` to it, or the traceback of a failed
import, and then receives a socket for each call. Python 3.10 or later can run this file without other packages.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

IMPORTED = "imported"
TAIL = 10_000
"""Number of bytes or characters to keep from the end of a failed program's output."""


def load(name: str) -> Callable[..., Any]:
    """Import the function `path/to/file.py:name` or `package.module.name`."""
    location, _, attribute = name.rpartition(":" if ":" in name else ".")
    sys.path[0] = os.getcwd()  # replaces the folder of this file, so that imports start in the working directory
    if location.endswith(".py"):
        sys.path[0], location = os.path.split(os.path.abspath(os.path.expanduser(location))[:-3])
    function: Callable[..., Any] = getattr(importlib.import_module(location), attribute)
    return function


def serve(function: Callable[..., Any], connection: socket.socket) -> None:
    """Send the process id, receive a call and run it, and send the error's text, or "" if there is no error."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stream, output = connection.makefile("rw", encoding="utf-8"), ""
    print(os.getpid(), file=stream, flush=True)
    call = json.loads(stream.readline())
    os.environ.update(call["environment"])
    try:
        result = function(**call["arguments"])
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except SystemExit as end:
        output = f"SystemExit: {end.code}" if end.code else ""  # an exit with code 0 is not a failure
    except BaseException:  # noqa: BLE001 - the caller decides who caused the failure
        output = traceback.format_exc()[-TAIL:]
    print(output, end="\n" * bool(output), file=sys.stderr)
    sys.stdout.flush()
    print(json.dumps(output), file=stream, flush=True)


def main() -> None:
    """Import the function, and fork for each call until the caller closes its end of the socket."""
    control = socket.socket(fileno=int(sys.argv[2]))
    try:
        function = load(sys.argv[1])
    except BaseException:  # noqa: BLE001 - the author of the configuration sees the error
        control.sendall(traceback.format_exc()[-TAIL:].encode())
        return
    control.sendall(IMPORTED.encode())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # otherwise finished forks would stay as zombies
    while descriptors := socket.recv_fds(control, 1, 1)[1]:
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                try:
                    control.close()
                    serve(function, connection)
                finally:
                    os._exit(0)


if __name__ == "__main__":
    main()
