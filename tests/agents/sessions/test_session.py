"""Sessions without a server, whose policy plays a script."""

import asyncio
from typing import Any

import pytest

from agent_rl.agents.episode.policy import Generation, ScriptedPolicy
from agent_rl.agents.sessions.chat import chat_answer, chat_request
from agent_rl.agents.sessions.request import RequestError
from agent_rl.agents.sessions.session import Session
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.errors import UnscoredError
from agent_rl.trajectory import StopReason, Trajectory

TOO_LONG = "word " * 1000


class Waiting(ScriptedPolicy):
    """Generates turns concurrently with other conversations, which play the same script."""

    async def generate(self, *arguments: Any, **options: Any) -> Generation:
        await asyncio.sleep(0.01)
        return await super().generate(*arguments, **options)

    async def begin(self, messages: Any, tools: Any) -> None:
        if messages[0]["content"] == TOO_LONG:
            raise UnscoredError("the prompt is too long")
        await super().begin(messages, tools)

    def sibling(self, *, is_trained: bool = True) -> ScriptedPolicy:
        return Waiting(self._texts)


def made(*texts: str, syntax: str = "hermes", **options: Any) -> Session:
    return Session(Waiting(texts), ToolCallFormat(syntax), Trajectory([], StopReason.ERROR), **options)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(session: Session, *messages: Any, names: tuple[str, ...] = ()) -> Any:
    """Return the message that answers a request with tools of these names."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    request = chat_request({"model": "policy", "messages": list(messages), "tools": tools})
    return chat_answer(await session.reply(request, "", False), {})["choices"][0]["message"]


async def test_parallel_requests_keep_the_limit_of_turns() -> None:
    session = made("One.", max_turns=2)
    answers = await asyncio.gather(*(ask(session, user(f"{number}")) for number in range(4)), return_exceptions=True)
    assert [str(each) for each in answers if isinstance(each, Exception)] == ["the episode has at most 2 turns"] * 2
    assert (len(session.trajectory.turns), session.trajectory.stop_reason) == (2, StopReason.MAX_TURNS)


async def test_a_side_request_that_is_too_long_does_not_end_the_episode() -> None:
    session = made("Yes.")
    await ask(session, user("?"))
    request = chat_request({"model": "small", "messages": [user(TOO_LONG)]})
    with pytest.raises(RequestError, match="longer than the run allows"):
        await session.reply(request, "", False)
    assert (session.trajectory.stop_reason, session.counts["too_long"]) == (StopReason.ERROR, 1), "no limit was reached"


async def test_results_belong_to_their_calls_in_any_order() -> None:
    calls = "".join(f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in "ab")
    session = made(calls, "Done.")
    turn = await ask(session, user("?"), names=("a", "b"))
    for name, call in zip("ab", turn["tool_calls"], strict=True):
        call["id"] = f"renamed {name}"
    results = [{"role": "tool", "tool_call_id": f"renamed {name}", "content": f"of {name}"} for name in "ba"]
    await ask(session, user("?"), turn, *results, names=("a", "b"))
    assert [(each.name, each.text) for each in session.trajectory.results] == [("a", "of a"), ("b", "of b")]
    assert session.trajectory.turns[0].observation == "of b\nof a", "the order in which the policy saw them"


async def test_a_turn_with_channels_is_shown_as_text() -> None:
    turn = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is 42."
    for names in ((), ("add",)):
        message = await ask(made(turn, syntax="gpt-oss"), user("6 * 7?"), names=names)
        assert (message["content"], message["reasoning_content"]) == ("It is 42.", "Hm.")
