"""Servers for trainings that are broken on purpose: a calculator and a judge, which can be killed, stopped or slow."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_rl.errors import ToolError
from agent_rl.tools.builtin.calculator import calculate
from benchmarks.namespaces import ROOT
from tests.rewards.judge.server import completion
from tests.support.http_faults import FaultyServer, answer, drop

TOOL_FILE = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
"""The key of a training's tool file."""
helpers: list[subprocess.Popen[bytes]] = []
"""The processes of the servers."""


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Service:
    """A server with a proxy before it.

    Args:
        healthy: what the server answers with when nothing is wrong.
    """

    def __init__(self, healthy: Callable[[Any], None]) -> None:
        self._healthy, self._step = healthy, healthy
        self.server = FaultyServer(default=lambda handler: self._step(handler))
        self.server.__enter__()
        self.port = _port()
        self._proxy = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "tests/support/tcp_proxy.py"), str(self.port)]
        helpers.append(proxy := subprocess.Popen([*command, str(self.server.server_port)]))
        return proxy

    def answer_with(self, step: Callable[[Any], None]) -> None:
        self._step = step

    def kill(self) -> None:
        self._proxy.kill()
        self._proxy.wait()

    def stop(self) -> None:
        self._proxy.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        self._step = self._healthy
        self._proxy.send_signal(signal.SIGCONT)
        if self._proxy.poll() is not None:
            self._proxy = self._start()


def write_tool_file(folder: Path, url: str, **limits: float) -> Path:
    """Write a tool file whose calculator is on a server, and return its path, the value of `TOOL_FILE`.

    Args:
        folder: contains the tool file.
        url: address of a server that answers with `calculated`.
        limits: limits on the tool's requests.
    """
    expression = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    endpoint = {"name": "calculator", "description": "Computes.", "path": "/calculate", "parameters": expression}
    tools = {"tools": [{"name": "http", "config": {"base_url": url, **limits, "endpoints": [endpoint]}}]}
    path = folder / "tools.yaml"
    path.write_text(json.dumps(tools))
    return path


def judge_word(url: str, **limits: float) -> str:
    """Return the override that adds a judge on a server; the arguments are like those of `write_tool_file`."""
    config = ",".join(f"{name}:{value}" for name, value in limits.items())
    return f"+agent_rl.reward.components.judge={{kind:judge,weight:0.1,config:{{url:'{url}',model:judge,{config}}}}}"


def calculated(handler: Any) -> None:
    """Answer a call of the calculator with its value, as plain text, as the policy knows it."""
    (expression,) = parse_qs(urlsplit(handler.path).query)["expression"]
    try:
        answer(200, calculate(expression).encode(), content_type="text/plain")(handler)
    except ToolError as error:
        answer(400, str(error).encode(), content_type="text/plain")(handler)


def judged(handler: Any) -> None:
    """Answer a judge's request with the same score for all."""
    answer(200, completion(json.dumps({"reason": "fine", "score": 5})))(handler)


def _flap(healthy: Callable[[Any], None]) -> Callable[[Any], None]:
    steps = random.Random(0)

    def step(handler: Any) -> None:
        steps.choice((healthy, drop, answer(503), answer(500)))(handler)

    return step


SERVICE_FAULTS: dict[str, Callable[[Service], None]] = {
    "tool server dead": Service.kill,
    "tool server slow": lambda service: service.answer_with(answer(200, b"1", delay_s=4, content_type="text/plain")),
    "tool server flapping": lambda service: service.answer_with(_flap(calculated)),
    "tool server's network stopped": Service.stop,
    "judge dead": Service.kill,
    "judge limits the rate": lambda service: service.answer_with(answer(429, {"error": "slow down"}, retry_after=1)),
    "judge's network stopped": Service.stop,
}
