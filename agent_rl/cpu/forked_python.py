"""Run a Python script as a fork of the server in `fork_server`: `python -I -S forked_python.py script arguments`.

The script replaces the Python executable in Ray's runtime environment, and imports almost nothing. The script sends its
arguments, environment and standard streams to the server, which replies once the fork is running. If there is no
server, this process runs Python itself.
"""

import json
import os
import socket
import sys

SERVER = "AGENT_RL_FORK_SERVER"
"""Environment variable with the path of the server's socket; the launcher sets it."""


def main() -> None:
    """Request the fork and exit, which is safe because Ray identifies a worker by an id among its arguments."""
    with open("/proc/self/oom_score_adj") as file:  # this score makes the OOM killer choose workers before Ray itself
        oom_score = file.read()
    request = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "niceness": os.nice(0),
        "oom_score": oom_score,
        "leads_group": os.getpgrp() == os.getpid(),
    }
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.connect(os.environ[SERVER])
            send(server, request)
            forked = bool(server.recv(1))
    except (KeyError, OSError):
        forked = False
    if not forked:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def send(receiver: socket.socket, request: dict[str, object]) -> None:
    """Send a request and this process's standard streams."""
    socket.send_fds(receiver, [b"3"], [0, 1, 2])
    receiver.sendall(json.dumps(request).encode())
    receiver.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
