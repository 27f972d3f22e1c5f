"""Runs the episodes of a verifiers 0.4 environment, which `env.toml` describes, with the policy as their model.

verifiers' own server runs the harness, the tools and the rewards; the server asks the episode's gateway for each turn,
and its reward becomes the trajectory's. Importing this file starts the server, which stops with the process that
imported the file. As a program, the file prints the environment's tasks, one JSON object per line:
`python episodes.py [COUNT]`. The file imports verifiers, so it runs in verifiers' Python (`agent_rl.gateway.python`).
"""

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import tomllib
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve import EnvClient, serve_env
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config

ENV = resolve_env_config(tomllib.loads(Path(__file__).with_name("env.toml").read_text(encoding="utf-8"))["env"])
MODEL = "policy"
"""The name of the model in a seat for which env.toml sets no model."""
SEATS = [name for name, seat in agent_config_fields(ENV).items() if seat.model is None]
if len(SEATS) != 1:
    raise ValueError(f"one seat must be the policy, not {SEATS}: set env.SEAT.model of each other seat in env.toml")
ATTEMPTS = 3
"""Maximum number of attempts at an episode that fails before its first turn, for example for lack of a sandbox."""


async def run(row: dict[str, Any], base_url: str, api_key: str) -> WireEpisode:
    """Let the server play the task of a row, send its reward to the gateway, and return verifiers' episode."""
    headers = {"Authorization": f"Bearer {api_key}", "x-api-key": api_key}  # verifiers overwrites one of these headers
    endpoint = EvalClientConfig(base_url=base_url, api_key_var="NO_KEY", headers=headers)
    for _ in range(ATTEMPTS):
        episode = await play(endpoint, json.loads(row["extra_info"]["task"]))
        if episode.ok or any(trace.calls for trace in episode.traces):
            break
    if not episode.ok:
        error = [*episode.errors, *(each for trace in episode.traces for each in trace.errors)][-1]
        raise RuntimeError(f"verifiers reports {error.type}: {error.message}")
    traces = [trace for trace in episode.traces if trace.agent.config.model == MODEL]
    if len(traces) != 1 or not traces[0].agent.trainable:
        raise ValueError(f"the policy's seat has {len(traces)} traces, or is not trainable: its reward is not defined")
    async with httpx.AsyncClient() as http:
        url, reward = f"{os.environ['AGENT_RL_GATEWAY']}/session/reward", traces[0].reward
        (await http.post(url, headers=headers, json={"reward": reward})).raise_for_status()
    return episode


async def play(endpoint: EvalClientConfig, task: dict[str, Any]) -> WireEpisode:
    """Return the episode of a task, which the server plays."""
    client = EnvClient(ADDRESS)
    playing = asyncio.ensure_future(client.run(endpoint, MODEL, SamplingConfig(), task))
    while not (await asyncio.wait({playing}, timeout=30))[0]:
        if not await client.health(timeout=60):
            raise RuntimeError("verifiers' server does not answer")
    await client.close()
    return await playing


class Output:
    """Prints the server's address to standard output; everything that is printed later goes to standard error."""

    @staticmethod
    def put(address: str) -> None:
        """Print the address."""
        print(address, flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def start() -> tuple[subprocess.Popen[str], str]:
    """Start the server; return its process, which exits when the object is deleted, and its address once it answers."""
    folder = str(Path(__file__).parent)  # has the tasksets that are not installed
    paths = {"PATH": sysconfig.get_path("scripts"), "PYTHONPATH": folder}  # harnesses run uv, one of the scripts
    joined = {name: os.pathsep.join(filter(None, [path, os.environ.get(name)])) for name, path in paths.items()}
    server = subprocess.Popen(
        [sys.executable, __file__, "serve"], env={**os.environ, **joined}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    async def answers(address: str) -> bool:
        client = EnvClient(address)
        while not (is_up := await client.health()) and server.poll() is None:
            pass
        await client.close()
        return is_up

    assert server.stdout
    address = server.stdout.readline().strip()
    if not (address and asyncio.run(answers(address))):
        raise RuntimeError("verifiers' server did not start; its output is in the log")
    return server, address


def main() -> None:
    """Serve the environment until standard input is closed, or print the environment's tasks."""
    if sys.argv[1:] == ["serve"]:
        parent = Connection(sys.stdin.fileno(), writable=False)
        serve_env(max_workers=1, address="tcp://127.0.0.1:0", address_queue=Output, death_pipe=parent, config=ENV)
        return
    tasks = load_taskset(ENV.taskset)
    for task in tasks.take(int(sys.argv[1])) if sys.argv[1:] else tasks:
        print(json.dumps({"prompt": task.data.prompt_text or "(the user begins)", "task": task.data.model_dump_json()}))


if __name__ == "__main__":
    main()
else:
    SERVER, ADDRESS = start()
