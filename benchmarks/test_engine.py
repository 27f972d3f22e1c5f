"""Tokens a second of the real SGLang engine on this CPU, at 1, 16 and 64 concurrent multi-turn requests.

A request is a conversation of three turns: each sends all tokens so far plus 16 new ones and gets 64 back.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from agent_rl.cpu import switch as cpu
from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer
from agent_rl.evaluation.sources import cpu_flags

pytestmark = pytest.mark.benchmark

TURNS, PROMPT, NEW, GENERATED = 3, 64, 16, 64
VOCABULARY = 512


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("model")
    make_model(folder, make_tokenizer(CORPUS, folder, VOCABULARY), hidden=64, layers=2, heads=4)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(folder), "--port", str(port)]
    command += ["--dtype", "float32", "--skip-tokenizer-init", "--log-level", "error", *cpu_flags()]
    env = os.environ | cpu.ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(cpu.stand_ins())}
    started = time.monotonic()
    with open(folder / "log", "wb") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until_ready(url, process, folder / "log")
            print(f"\nserver start: {time.monotonic() - started:.1f} s")
            yield url
        finally:
            process.terminate()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server did not start")


async def conversation(session: aiohttp.ClientSession, url: str, rng: random.Random) -> int:
    ids = [rng.randrange(10, VOCABULARY) for _ in range(PROMPT)]
    for _ in range(TURNS):
        ids += [rng.randrange(10, VOCABULARY) for _ in range(NEW)]
        body = {
            "input_ids": ids,
            "sampling_params": {"max_new_tokens": GENERATED, "temperature": 1.0, "ignore_eos": True},
            "return_logprob": True,
        }
        async with session.post(f"{url}/generate", json=body) as response:
            ids += (await response.json())["output_ids"]
    return TURNS * GENERATED


async def throughput(url: str, concurrent: int, conversations: int) -> float:
    rng, slots = random.Random(concurrent), asyncio.Semaphore(concurrent)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(300)) as session:

        async def one() -> int:
            async with slots:
                return await conversation(session, url, rng)

        await one()
        started = time.monotonic()
        tokens = sum(await asyncio.gather(*(one() for _ in range(conversations))))
        return tokens / (time.monotonic() - started)


@pytest.mark.parametrize("concurrent", [1, 16, 64])
def test_tokens_a_second(server: str, concurrent: int) -> None:
    rate = asyncio.run(throughput(server, concurrent, max(8, 2 * concurrent)))
    print(f"{concurrent} concurrent: {rate:,.0f} tokens/s")
    assert rate > 0
