"""Each fault of a gateway fails the check that is about it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent_rl.agents.sessions.request import RequestError
from agent_rl.agents.sessions.server import Gateway
from agent_rl.agents.sessions.session import Session
from agent_rl.conformance import OpenSession, TrainedSequence
from agent_rl.conformance.engine import Engine
from agent_rl.conformance.run import run_checks
from tests.conformance.drivers.ours import OurDriver

pytestmark = pytest.mark.trainer


def changed(base: type, **methods: Callable[..., Any]) -> type:
    """A subclass with these methods, which get the base's method after `self`."""

    def method(name: str) -> Callable[..., Any]:
        return lambda self, *arguments, **options: methods[name](
            self, getattr(super(fault, self), name), *arguments, **options
        )

    fault: type = type("Fault", (base,), {name: method(name) for name in methods})
    return fault


def trains(change: Callable[[TrainedSequence], TrainedSequence]) -> type:
    """A driver that returns other sequences than the gateway's."""

    async def sequences(self: Any, base: Any, session: OpenSession) -> list[TrainedSequence]:
        return [change(each) for each in await base(session)]

    return changed(OurDriver, sequences=sequences)


def taking_temperature(self: Any, base: Any, request: Any, *rest: Any) -> Any:
    if "temperature" in request.sampling:
        self._policy.sampling = {**self._policy.sampling, "temperature": 0.1}
    return base(request, *rest)


def with_models(self: Any, base: Any, request: Any) -> Any:
    self._models = (request.model,)
    return base(request)


def comparing_ids(self: Any, base: Any, request: Any) -> Any:
    ids = [call["id"] for message in request.messages for call in message.get("tool_calls") or ()]
    return None if "toolu_mine" in ids else base(request)


def refusing_unknown_tools(self: Any, base: Any, conversation: Any, request: Any, turn: Any, reply: Any) -> None:
    if any(call.name != "add" for call in turn.calls):
        raise RequestError("there is no such tool")
    base(conversation, request, turn, reply)


def training_what_nobody_got(self: Any, base: Any, conversation: Any, request: Any, turn: Any, reply: Any) -> None:
    reply.is_fetched = True
    base(conversation, request, turn, reply)


async def dropping_the_last_turn(self: Any, base: Any) -> None:
    for conversation in self._conversations:
        conversation.turns[-1][1].is_fetched = False
    await base()


async def twice(self: Any, base: Any, session: OpenSession) -> list[TrainedSequence]:
    return [*await base(session), *await base(session)]


def with_control_tokens(self: Any, base: Any, conversation: Any, *rest: Any) -> Any:
    conversation.policy.as_text = list
    return base(conversation, *rest)


FAULTS: dict[str, tuple[type, str]] = {
    "retries are samples": (
        changed(Session, reply=lambda self, base, request, key, is_retry: base(request, key, False)),
        "a_retry_gets_the_same_turn: retry_count",
    ),
    "equal bodies are retries": (
        changed(Session, reply=lambda self, base, request, key, is_retry: base(request, key, True)),
        "equal_bodies_are_two_samples",
    ),
    "retries start before the first attempt ends": (
        changed(Session, reply=lambda self, base, request, key, is_retry: base(
            request, key, is_retry and self._replies[key].done())),
        "a_retry_waits_for_the_first_attempt: both",
    ),
    "what nobody got is trained": (changed(Session, _append=training_what_nobody_got), "ended_sessions_are_closed"),
    "the last turn is dropped": (
        changed(Session, close=dropping_the_last_turn), "a_client_may_hang_up_at_each_event",
    ),
    "each request starts a sequence": (
        changed(Session, _known=lambda self, base, request: None), "an_ordinary_agent_gives_one_sequence",
    ),
    "ids of calls are compared": (
        changed(Session, _known=comparing_ids), "rewritten_turns_continue_a_conversation: renamed_call",
    ),
    "each model is trained": (changed(Session, _continued=with_models), "side_requests_are_answered_and_not_trained"),
    "the client's temperature is taken": (
        changed(Session, reply=taking_temperature), "sampling_parameters_are_the_runs",
    ),
    "unknown tools are refused": (changed(Session, _append=refusing_unknown_tools), "odd_calls_are_no_error: unknown"),
    "control tokens are encoded": (
        changed(Session, _fits=with_control_tokens), "control_tokens_in_messages_stay_text",
    ),
    "no keys are checked": (
        changed(Gateway, _session=lambda self, base, request: next(iter(self.sessions.values()))),
        "wrong_keys_are_refused: other",
    ),
    "log-probs are invented": (
        trains(lambda each: each._replace(logprobs=each.logprobs or [0.0] * len(each.mask))),
        "log_probs_are_the_engines: off",
    ),
    "log-probs are shifted": (
        trains(lambda each: each._replace(logprobs=[0.0, *(each.logprobs or ())][:-1])), "equal_bodies_are_two_samples",
    ),
    "the first version is reported": (
        trains(lambda each: each._replace(versions=(each.versions or (0, 0))[:1] * 2)), "new_weights_are_a_range",
    ),
    "prefixes are trained in each leaf": (
        changed(OurDriver, sequences=twice), "forks_and_roll_backs_train_each_token_once",
    ),
    "tokens of the client are trained": (
        trains(lambda each: each._replace(mask=[1] * len(each.mask))), "turns_of_the_client_are_not_trained",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_check(name: str) -> None:
    fault, check = FAULTS[name]
    driver = fault() if issubclass(fault, OurDriver) else OurDriver()
    if issubclass(fault, Session):
        driver.session_class = fault
    elif issubclass(fault, Gateway):
        driver.gateway_class = fault
    [result] = asyncio.run(run_checks(driver, [check]))
    assert result["status"] == "fails", result
    assert "Error" not in result["problem"]  # it is found, not stumbled over


class Hangs(OurDriver):
    """Its first session does not open."""

    starts = 0

    async def start(self, engine: Engine) -> None:
        self.starts += 1
        await super().start(engine)

    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        if self.starts == 1:
            await asyncio.Event().wait()
        return await super().session(temperature=temperature, logprobs=logprobs)


def test_a_gateway_that_hangs_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, names = Hangs(), ["equal_bodies_are_two_samples"] * 2
    monkeypatch.setattr("agent_rl.conformance.run.TIMEOUT_S", 3.0)
    statuses = [result["status"] for result in asyncio.run(run_checks(driver, names))]
    assert (statuses, driver.starts) == (["does not end", "passes"], 2)
