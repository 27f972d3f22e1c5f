"""The gateway of this package over verl's clients and load balancer; only the server behind them is scripted."""

import asyncio
from types import SimpleNamespace
from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from agent_rl.agents.policies.chat_template import template_of
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.sessions.server import Gateway
from agent_rl.agents.sessions.session import Session
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.conformance import Driver, OpenSession, TrainedSequence
from agent_rl.conformance.engine import Engine
from agent_rl.errors import UnscoredError
from agent_rl.trajectory import StopReason, Trajectory
from agent_rl.verl_adapter.token_builder import TemplateBuilder


class Handle:
    """Calls an object in this process as an actor of Ray is called: `handle.method.remote(...)` is awaitable."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def remote(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            if asyncio.iscoroutine(result):
                return asyncio.ensure_future(result)
            done = asyncio.get_running_loop().create_future()
            done.set_result(result)
            return done

        return SimpleNamespace(remote=remote)


class Interrupted:
    """A server that aborts turns of two versions of the weights halfway, and resumes them under the second one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rests: dict[tuple[int, ...], Any] = {}

    async def generate(self, request_id: str, *, prompt_ids: list[int], **options: Any) -> Any:
        if (rest := self._rests.pop(tuple(prompt_ids), None)) is not None:
            return rest
        whole = await self._engine.generate(request_id, prompt_ids=prompt_ids, **options)
        first, last = (whole.extra_fields[f"{end}_global_steps"] for end in ("min", "max"))
        half = len(whole.token_ids) // 2
        if first == last:
            return whole
        self._rests[(*prompt_ids, *whole.token_ids[:half])] = _part(whole, slice(half, None), whole.stop_reason, last)
        return _part(whole, slice(half), "abort", first)


def _part(whole: Any, part: slice, reason: str, step: int) -> Any:
    logprobs = None if whole.log_probs is None else whole.log_probs[part]
    fields = {"token_ids": whole.token_ids[part], "log_probs": logprobs, "extra_fields": {"global_steps": step}}
    return SimpleNamespace(**{**vars(whole), **fields, "stop_reason": reason})


class OurDriver(Driver):
    """Opens sessions as `gateway_agent` does, over verl's `LLMServerClient`, whose server resumes turns by itself."""

    session_class: type[Session] = Session
    gateway_class: type[Gateway] = Gateway
    client_class: type[LLMServerClient] = LLMServerClient

    def server(self, engine: Engine) -> Any:
        return engine

    async def start(self, engine: Engine) -> None:
        rollout = SimpleNamespace(name="sglang", response_length=4096)
        balancer = GlobalRequestLoadBalancer(servers={"server": Handle(self.server(engine))})
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        self._client = self.client_class(config, Handle(balancer))  # type: ignore[arg-type]
        self._tokenizer, self._gateway = engine.tokenizer, self.gateway_class()
        self._gateway.start()

    async def stop(self) -> None:
        await self._gateway.stop()

    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        format, tokenizer = ToolCallFormat(), self._tokenizer
        params = {"temperature": temperature, "top_p": 1.0, "logprobs": logprobs}
        policy = TokenPolicy(
            self._client,
            TemplateBuilder(template_of(tokenizer)),
            tokenizer,
            params,
            format=format,
            engine_stops=False,
            prompt_length=4096,
            response_length=4096,
        )
        session = self.session_class(policy, format, Trajectory([], StopReason.ERROR))
        self._gateway.sessions[session.id] = session
        return OpenSession(f"http://127.0.0.1:{self._gateway.port}", session.id, (session, policy))

    async def finish(self, session: OpenSession) -> None:
        await session.handle[0].close()
        del self._gateway.sessions[session.key]

    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        policy = session.handle[1]
        first, last = (policy.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
        try:
            return [TrainedSequence(*each[:4], (first, last)) for each in policy.sequences()]
        except UnscoredError:  # nothing was sampled
            return []


class OurAsyncDriver(OurDriver):
    """The same over verl's `FullyAsyncLLMServerClient`, which resumes turns that the server has aborted."""

    client_class = FullyAsyncLLMServerClient

    def server(self, engine: Engine) -> Any:
        return Interrupted(engine)
