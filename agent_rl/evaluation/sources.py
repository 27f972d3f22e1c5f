"""Opens the policy source that an evaluation's settings select, and starts a server if needed.

The server loads a model folder; a training checkpoint is first merged into such a folder (`verl_adapter.checkpoints`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from omegaconf import OmegaConf

import agent_rl
from agent_rl.agents.policies import PolicySource
from agent_rl.agents.policies.chat import ChatEndpoint
from agent_rl.agents.policies.local import LocalModel
from agent_rl.agents.policies.source import open_client
from agent_rl.agents.policies.tokens import SGLangTokens, TokenSource, VLLMTokens
from agent_rl.cpu import switch as cpu
from agent_rl.cpu.profile import profile_of
from agent_rl.errors import ConfigError, EngineError
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.launch.command import has_accelerator
from agent_rl.launch.output import process_end
from agent_rl.launch.process import begin_child, stop
from agent_rl.verl_adapter.checkpoints import model_folder
from agent_rl.verl_adapter.inspection import load_chat_tokenizer

START_S = 1200.0
"""Number of seconds within which a server must load its model."""


@asynccontextmanager
async def open_source(settings: EvaluationSettings, folder: Path) -> AsyncIterator[PolicySource]:
    """Open and check the policy source of an evaluation.

    Args:
        settings: the settings of the evaluation.
        folder: the folder for the log of a started server.

    Raises:
        ConfigError: the model cannot be reached.
    """
    async with AsyncExitStack() as stack:
        url, weights = settings.endpoint, settings.model
        if url is None and settings.policy == "vllm":
            raise ConfigError(
                "endpoint", "agent-rl does not start vLLM servers", "Start vLLM, and pass --endpoint http://host:8000"
            )
        if url is None:
            model = await asyncio.to_thread(model_folder, settings.model, "model")
            weights = str(model)
            if settings.policy != "local":
                url = await stack.enter_async_context(serve(model, settings.model, folder / "server.log"))
        elif settings.policy == "local":
            raise ConfigError(
                "endpoint", "policy=local does not use an endpoint", "Remove the endpoint, or choose another policy"
            )
        source = _source(settings, url or "", weights)
        if isinstance(source, TokenSource):
            source.logprobs = settings.agent_rl.trace.tokens
            source.drop_thoughts = settings.agent_rl.thinking.history == "template"
        await stack.enter_async_context(source)
        await source.check()
        yield source


def _source(settings: EvaluationSettings, url: str, weights: str) -> PolicySource:
    sampling, variables = settings.sampling, settings.apply_chat_template_kwargs
    limits: Any = settings.model_dump(include={"api_key_env", "concurrency", "timeout_s"})
    if settings.policy == "chat":
        if settings.custom_chat_template is not None:
            remedy = "Use policy=sglang or vllm, or add custom_chat_template=null if the server has the same template"
            raise ConfigError("custom_chat_template", "with policy=chat, the server uses its own template", remedy)
        if variables and (own := sampling.body.get("chat_template_kwargs", {})) is not None:
            body = {**sampling.body, "chat_template_kwargs": {**variables, **own}}
            sampling = sampling.model_copy(update={"body": body})
        return ChatEndpoint(open_client(url, settings.model, **limits), sampling)
    chat = load_chat_tokenizer(settings.tokenizer or weights, variables, settings.custom_chat_template)
    if settings.policy != "local":
        server = SGLangTokens if settings.policy == "sglang" else VLLMTokens
        return server(open_client(url, settings.model, **limits), chat, sampling)
    if not cpu.is_selected():
        return LocalModel(weights, chat, sampling)
    profile_of(weights).use_threads()
    return LocalModel(weights, chat, sampling, dtype="float32")


@asynccontextmanager
async def serve(model: Path, name: str, log: Path, flags: Sequence[str] = ()) -> AsyncIterator[str]:
    """Start a server, and yield its address when it is ready.

    Args:
        model: the model's folder.
        name: the model's name on the server.
        log: file for the server's output.
        flags: additional command-line flags for the server, which override its other flags.

    Raises:
        ConfigError: the machine has no accelerator and the CPU was not selected, or the server does not start.
        EngineError: the server exited unexpectedly.
    """
    if not (cpu.is_selected() or has_accelerator()):
        remedy = "Set VERL_PLATFORM=cpu to use the CPU, or pass a server with --endpoint"
        raise ConfigError("VERL_PLATFORM", "there is no accelerator on this machine", remedy)
    port = _free_port()
    process = _start(model, name, port, log, flags)
    try:
        url = f"http://127.0.0.1:{port}"
        await _ready(url, process, log)
        symptom = None
        try:
            yield url
        except EngineError as error:
            symptom = error
        if process.poll() is not None:
            problem = f"the server has exited: {process_end(log, process.returncode)}. See {log}"
            raise EngineError(f"{problem}. {symptom}" if symptom else problem) from symptom
        if symptom is not None:
            raise symptom
    finally:
        await asyncio.to_thread(stop, process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # kills any processes that the server left behind


def _free_port() -> int:
    """Return a free port that is low enough for SGLang, which derives other ports from it by adding thousands."""
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            port = random.randint(20_000, 50_000)
            free.bind(("127.0.0.1", port))
            return port


def _start(model: Path, name: str, port: int, log: Path, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    command, env = server_command(model, name, port)
    with open(log, "wb") as output:
        return subprocess.Popen(
            [*command, *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            preexec_fn=begin_child,
            start_new_session=True,
        )


def server_command(model: Path, name: str, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment that start SGLang's server; on a CPU, dtype and threads are as in training.

    Args:
        model: the model's folder.
        name: the model's name on the server.
        port: port on the loopback interface.
    """
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--served-model-name", name]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    env = dict(os.environ)
    if cpu.is_selected():
        profile = profile_of(model)
        command += ["--dtype", profile.dtype, *cpu_flags()]
        with profile.in_environment():
            env |= cpu.child_environment()
    return command, env


def cpu_flags() -> list[str]:
    """Return the engine settings of the CPU profile as command-line flags for the server."""
    profile = OmegaConf.load(Path(agent_rl.__file__).parent / "config/platform/cpu.yaml")
    flags = []
    for key, value in profile.actor_rollout_ref.rollout.engine_kwargs.sglang.items():
        name = "--" + str(key).replace("_", "-")
        flags += [name] if value is True else [] if value is False else [name, str(value)]
    return flags


async def _ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                problem = f"SGLang did not start: {process_end(log, process.returncode)}"
                raise ConfigError("model", problem, f"See {log}")
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"{url}/health", timeout=5)).is_success:
                    return
            await asyncio.sleep(0.2)
    raise ConfigError("model", f"SGLang was not ready after {START_S:.0f} s", f"See {log}")
