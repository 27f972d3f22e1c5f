"""The server that starts Ray's workers, once for all tests of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

LAUNCHER = """
import json, os, signal, sys
from agent_rl.cpu.fork_server import fork_server
signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as in the background of a shell
with fork_server(os.environ, sys.stderr) as more:
    print(json.dumps(more), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variable that names it; it must end with its launcher."""
    environment = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "OF_THE_SERVER": "1",
        "RAY_AUTH_MODE": "disabled",
        "OMP_NUM_THREADS": "2",
    }
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        open(tmp_path_factory.mktemp("server") / "log", "wb") as log,
        subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, stderr=log, **pipes) as launcher,
    ):
        yield json.loads(launcher.stdout.readline())
        started = psutil.Process(launcher.pid).children()
        launcher.kill()
    assert started
    assert psutil.wait_procs(started, 60)[1] == []
