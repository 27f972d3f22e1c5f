"""Gateways of other projects that run as programs, each in an environment of its own.

`AGENT_RL_GATEWAYS` names the folder with these environments: `rllm`, `agentlightning` and `verifiers`.
"""

import asyncio
import contextlib
import copy
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import httpx

from agent_rl.conformance import Driver, OpenSession, TrainedSequence, Unsupported
from agent_rl.conformance.engine import MODEL, Engine

TIMEOUT_S = 180.0


class ProgramDriver(Driver):
    """Starts a program on a free port, and waits until it answers.

    Attributes:
        environment: the folder of its environment.
        health: the path that it answers once it runs.
    """

    environment: str
    health: str

    def command(self, engine: Engine, port: int, folder: Path) -> list[str]:
        """Return the arguments of the environment's Python."""
        raise NotImplementedError

    async def start(self, engine: Engine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.engine, self.url, self._folder = engine, f"http://127.0.0.1:{port}", tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        python = Path(os.environ["AGENT_RL_GATEWAYS"]) / self.environment / "bin" / "python"
        with (folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(python), *self.command(engine, port, folder), cwd=folder, stdout=log, stderr=log
            )
        self.http = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=TIMEOUT_S)
        for _ in range(int(TIMEOUT_S / 0.1)):
            try:
                await self.http.get(self.health)
                return
            except httpx.ConnectError:
                await asyncio.sleep(0.1)
            if self._process.returncode is not None:
                break
        problem = (folder / "log").read_text()[-2000:]
        await self.stop()
        raise RuntimeError(problem)

    async def stop(self) -> None:
        await self.http.aclose()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # SIGTERM would wait for requests that the engine holds
        await self._process.wait()
        self._folder.cleanup()


def sequences_of(
    requests: list[tuple[list[int], list[int], list[float] | None]], versions: Any
) -> list[TrainedSequence]:
    """Return one sequence for requests each of which continues the tokens of the one before it.

    Args:
        requests: prompt, sampled tokens and their log-probs of each request.
        versions: of all sequences.
    """
    sequences: list[TrainedSequence] = []
    for prompt, sampled, logprobs in requests:
        own = [0.0] * len(sampled) if logprobs is None else list(logprobs)
        for place, known in enumerate(sequences):
            before = [*known.prompt_ids, *known.response_ids]
            if prompt[: len(before)] == before:
                between = prompt[len(before) :]
                sequences[place] = TrainedSequence(
                    known.prompt_ids,
                    [*known.response_ids, *between, *sampled],
                    [*known.mask, *[0] * len(between), *[1] * len(sampled)],
                    [*(known.logprobs or ()), *[0.0] * len(between), *own],
                    versions,
                )
                break
        else:
            sequences.append(TrainedSequence(prompt, sampled, [1] * len(sampled), own, versions))
    return sequences


class RllmDriver(ProgramDriver):
    """Sends chat completions to an engine, and records a trace for each request."""

    environment, health = "rllm", "/health"

    def command(self, engine: Engine, port: int, folder: Path) -> list[str]:
        options = ["--host", "127.0.0.1", "--port", str(port), "--store", "memory", "--worker", f"{engine.url}/v1"]
        return [f"{os.environ['AGENT_RL_GATEWAYS']}/{self.environment}/bin/rllm-model-gateway", *options]

    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        if (temperature, logprobs) != (1.0, True):
            raise Unsupported("a session has neither a temperature nor a choice of log-probs")
        key = (await self.http.post("/sessions", json={})).json()["session_id"]
        return OpenSession(f"{self.url}/sessions/{key}", key)

    async def finish(self, session: OpenSession) -> None:
        await asyncio.sleep(0.05)  # sessions have no end: until traces are stored
        await self.http.post("/admin/flush")

    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        traces = (await self.http.get(f"/sessions/{session.key}/traces")).json()
        requests = [(each["prompt_token_ids"], each["completion_token_ids"], each["logprobs"]) for each in traces]
        return sequences_of(requests, None)


class AgentLightningDriver(ProgramDriver):
    """Sends chat completions to a registered engine, and records an event for each request; streams are refused."""

    environment, health = "agentlightning", "/healthz"

    def command(self, engine: Engine, port: int, folder: Path) -> list[str]:
        options = ["host=127.0.0.1", f"port={port}", f"default_proxy.model_name={MODEL}", "hydra.run.dir=."]
        return ["-m", "agentlightning.server", *options]

    async def start(self, engine: Engine) -> None:
        await super().start(engine)
        await self.http.post("/api/models", json=[{"model": MODEL, "endpoint": f"{engine.url}/v1"}])

    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        if (temperature, logprobs) != (1.0, True):
            raise Unsupported("temperature and log-probs are settings of the server")
        [rollout] = (await self.http.post("/api/rollouts", json=[{"input": {}}])).json()
        key = rollout["rollout_id"]
        await self.http.patch(f"/api/rollouts/{key}", json={"status": {"state": "running"}})
        return OpenSession(f"{self.url}/proxy/rollout/{key}/attempt/0/mode/train/openai", key)

    async def finish(self, session: OpenSession) -> None:
        await self.http.patch(f"/api/rollouts/{session.key}", json={"status": {"state": "succeeded"}})

    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        query = {"event_type": "model_request", "format": "triplet"}
        events = [
            each["data"] for each in (await self.http.get(f"/api/rollouts/{session.key}/events", params=query)).json()
        ]
        sampled = [each for each in events if each["status"] == "ok"]
        steps = [each["server"]["version"] for each in sampled] or [0]
        requests = [
            (each["prompt_token_ids"], each["response_token_ids"], each["response_log_probs"]) for each in sampled
        ]
        return sequences_of(requests, (min(steps), max(steps)))


class VerifiersDriver(ProgramDriver):
    """Renders chat completions to tokens for vLLM's `/inference/v1/generate`; a branch of a trace is a sequence."""

    environment, health = "verifiers", "/health"

    def command(self, engine: Engine, port: int, folder: Path) -> list[str]:
        tokenizer = copy.deepcopy(engine.tokenizer)
        tokenizer.unk_token = None  # as in Qwen's; otherwise the renderer takes <|endoftext|> for unknown
        tokenizer.save_pretrained(folder / "tokenizer")
        program = Path(__file__).with_name("verifiers_program.py")
        return [str(program), str(port), engine.url, str(folder / "tokenizer"), MODEL]

    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        if not logprobs:
            raise Unsupported("log-probs are always recorded")
        slot = (await self.http.post("/open", json={"temperature": temperature})).json()
        return OpenSession(slot["base_url"], slot["key"])

    async def finish(self, session: OpenSession) -> None:
        await self.http.post(f"/close/{session.key}")

    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        branches = (await self.http.get(f"/branches/{session.key}")).json()
        return [
            TrainedSequence(each["ids"][:first], each["ids"][first:], each["mask"][first:], each["logprobs"][first:])
            for each in branches
            if (first := each["mask"].index(1) if 1 in each["mask"] else 0)
        ]
