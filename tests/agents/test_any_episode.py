"""For any sequence of generations and tool results: ids and mask belong together, what was is never changed, no budget
is exceeded, and there is exactly one stop reason.

Whole episodes of native calls, with real tokens, verl's token builder and a server that plays any tokens.
"""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from agent_rl.agents.episode.budget import EpisodeBudget, FinalTurn
from agent_rl.agents.episode.episode import run_episode
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import Tool, ToolSession, ToolSpec
from agent_rl.tools.builtin.submit_answer import SubmitAnswer
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory
from agent_rl.verl_adapter.token_builder import template_builder
from tests.agents.server import THINKING, Server

pytestmark = pytest.mark.trainer

MESSAGES = ToolsSettings(on_error="observe", reuse_results=False)
PROMPT = [{"role": "user", "content": "?"}]


class Any(Tool):
    """Gives the texts that it was made with, one after the other; "!" is a failure."""

    name, description = "any", "d"
    parameters = {"type": "object", "properties": {"x": {}}}  # noqa: RUF012
    texts: list

    async def call(self, arguments):
        text = self.texts.pop(0) if self.texts else "nothing"
        if text == "!":
            raise ValueError("no")
        return text


def call(name, arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


TEXT = st.text(max_size=12)
CALLS = st.builds(
    lambda thought, calls: thought + "".join(calls),
    st.sampled_from(["", "<think>why</think>", "<think>why", "So: "]),
    st.lists(
        st.builds(
            call, st.sampled_from(["any", "none", "submit_answer"]), st.sampled_from(['{"x": 1}', "{}", "[", "3"])
        ),
        min_size=1,
        max_size=3,
    ),
)
TURNS = st.lists(
    st.one_of(CALLS, CALLS, TEXT, st.lists(st.integers(0, 500), min_size=1, max_size=12)), min_size=1, max_size=6
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=TURNS,
    results=st.lists(st.one_of(TEXT, st.just("!"), st.just("long " * 40)), max_size=6),
    length=st.integers(20, 400),
    budget=st.builds(
        EpisodeBudget,
        max_turns=st.none() | st.integers(1, 4),
        max_tool_calls=st.none() | st.integers(0, 3),
        max_malformed=st.integers(1, 3),
        max_repeats=st.none() | st.integers(1, 2),
        final=st.none() | st.builds(FinalTurn, st.just("Now."), st.integers(0, 19)),
    ),
    drop_thoughts=st.booleans(),
)
def test_any_episode(tokenizer, monkeypatch, turns, results, length, budget, drop_thoughts):
    server = Server(tokenizer, *turns)
    spec = ToolSpec.from_class(type("Made", (Any,), {"texts": list(results)}))
    format = ToolCallFormat()

    async def play():
        policy = TokenPolicy(
            server,
            template_builder(create_continuous_token_builder(tokenizer, hf_model_type="qwen2")),
            tokenizer,
            {"logprobs": True},
            prompt_length=64,
            response_length=length,
            engine_stops=False,
            format=format,
            drop_thoughts=drop_thoughts,
        )
        specs = [spec, ToolSpec.from_class(SubmitAnswer)]
        async with ToolSession(specs, default_timeout_s=30, settings=MESSAGES) as session:
            return await run_episode(policy, format, session, PROMPT, budget), policy

    with monkeypatch.context() as patch:
        if drop_thoughts:
            patch.setattr(tokenizer, "chat_template", THINKING)
        trajectory, policy = asyncio.run(play())
        samples = policy.sequences()

    # tokens
    prompts = [request["ids"] for request in server.requests[: len(trajectory.turns)]]
    for sample in samples:
        assert len(sample.response_ids) == len(sample.mask) == len(sample.logprobs) <= length
        assert sample.mask[-1] == 1
        ids = [*sample.prompt_ids, *sample.response_ids]
        turns_in_it = len("".join(map(str, sample.mask)).replace("0", " ").split())
        seen, prompts = prompts[:turns_in_it], prompts[turns_in_it:]
        for earlier, later in zip(seen, [*seen[1:], ids], strict=True):
            assert later[: len(earlier)] == earlier
            assert ids[: len(later)] == later
            assert sample.mask[len(earlier) - len(sample.prompt_ids)] == 1
    assert prompts == []
    assert sum(sum(sample.mask) for sample in samples) == sum(turn.tokens for turn in trajectory.turns)
    assert len(samples) == 1 or drop_thoughts

    # the episode
    reason = trajectory.stop_reason
    assert reason in StopReason
    assert (trajectory.answer is not None) == (reason is StopReason.ANSWERED)
    assert (trajectory.error is not None) == (reason is StopReason.ENGINE_ERROR)
    assert reason is not StopReason.ENGINE_ERROR or len(trajectory.turns) == len(turns)
    assert budget.max_turns is None or len(trajectory.turns) <= budget.max_turns
    run = [result for result in trajectory.results if result.status is not ToolStatus.SKIPPED]
    counted = [result for result in run if result.name != "submit_answer"]
    assert budget.max_tool_calls is None or len(counted) <= budget.max_tool_calls
    told = [number for number, turn in enumerate(trajectory.turns) if (turn.observation or "").endswith("Now.")]
    assert (
        told == []
        or (budget.final is not None and told == [len(trajectory.turns) - 2])
        or reason in (StopReason.ENGINE_ERROR,)
    )
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
