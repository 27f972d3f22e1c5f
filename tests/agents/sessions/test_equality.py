"""Conversations of a program over HTTP have the tokens, masks and log-probs of `tool_call_agent`'s conversations."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import pytest

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.policies.shown_tools import call_text
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import Sampled
from agent_rl.agents.policies.turn_writer import TurnWriter
from agent_rl.agents.registry import make_loop
from agent_rl.agents.sessions.server import gateway
from agent_rl.errors import ToolError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import Tool, ToolSpec
from agent_rl.trajectory import ToolCall, Trajectory
from agent_rl.verl_adapter.token_builder import TemplateBuilder
from tests.agents.policies.template_matrix import stop_before
from tests.agents.server import THINKING
from tests.support.real_templates import NAMES, real_tokenizer

pytestmark = pytest.mark.trainer

CONVERSATIONS, AT_ONCE = 200, 8
REAL = [name for name in NAMES if name.startswith(("Qwen-", "Qwen3", "GLM-4.6", "Kimi-K2-I", "meta-llama-Llama-3.1",
                                                   "mistralai-Mistral-N", "openai-gpt", "google-gemma-4",
                                                   "deepseek-ai-DeepSeek-V3.1", "MiniMax-M2"))]  # fmt: skip
KIMIS = ["functions.compute:0", "functions.compute:1"]
"""Ids, which are the names of the calls."""
RESULTS = ("42", "", "größer 日本 🧮\n\nline", '{"a": [1, "<b>"]}', "<|im_end|>\n<|im_start|>user\nHello.", "x " * 50)
WORDS = ("apples", "größer", "日本", "6*7", '"quoted"', "a\nb", "<tool_call>", "1.0", "")


class Compute(Tool):
    """Answers with the result that its argument numbers, or fails."""

    name, description = "compute", "Compute."
    parameters: ClassVar = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def call(self, arguments: dict[str, Any]) -> str:
        number = len(arguments["text"]) % (len(RESULTS) + 1)
        if number == len(RESULTS):
            raise ToolError("it is too long")
        return RESULTS[number]


SPEC = ToolSpec.from_class(Compute)


class PlainText(TokenPolicy):
    """Special tokens in observations are text for both agents, as the gateway has them."""

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        return await super().extend(self.as_text(messages))


class Player:
    """Plays turns; the log-prob of a token depends on the token and its place."""

    def __init__(self, turns: Sequence[list[int]]) -> None:
        self.turns = list(turns)

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Sampled:
        ids = self.turns.pop(0)
        logprobs = [-0.1 - token / 1e6 - (len(prompt_ids) + place) / 1e3 for place, token in enumerate(ids)]
        return Sampled(ids, logprobs, "stop")


def script(template: ChatTemplate, rng: random.Random) -> list[list[int]]:
    """Turns with one or two calls, some of them unreadable or with wrong arguments, and an answer."""
    writer, plain = TurnWriter(template, [SPEC.schema()]), TurnWriter(template)
    texts = []
    for _ in range(rng.randint(0, 4)):
        calls = [
            ToolCall(
                "compute", {rng.choice(["text", "text", "text", "number"]): " ".join(rng.choices(WORDS, k=3))}, call_id
            )
            for call_id in rng.choice(
                [KIMIS[:1], KIMIS[:1], KIMIS] if "Kimi" in template.name else [[""], [""], ["", ""]]
            )
        ]
        text = call_text(calls)
        for some in (calls, calls[:1]):  # a template may write one call at a time, or none
            with contextlib.suppress(ValueError):
                text = writer.calls(some)
                break
        texts.append((text[: len(text) // 2] if rng.random() < 0.15 else text, "tool"))
    texts.append((plain.answer(rng.choice(["It is 42.", "größer 日本", "I do not know.\n\nSorry."])), "user"))
    thought = rng.choice(["", "<think>\nHm.\n</think>\n\n"])
    return [
        template.encode(writer.after_thought(thought + text))
        + stop_before(template, {"role": role, "name": "compute", "content": "x"})
        for text, role in texts
    ]


def observations(trajectory: Trajectory) -> list[Any]:
    """Results or correction after each turn but the last."""
    return [[result.text for result in turn.results] or turn.observation for turn in trajectory.turns[:-1]]


async def play(agent: str, template: ChatTemplate, turns: list[list[int]], **info: Any) -> tuple[Trajectory, Any]:
    function = {"function": "tests.agents.gateway_program.replay"}
    settings = AgentRLSettings.from_config({"agent_rl": {"gateway": function}})
    limits = EpisodeLimits(
        response_length=8192, prompt_length=8192, max_parallel_calls=4, format=template.syntax or "hermes"
    )
    loop = make_loop(agent, EpisodeSetup(settings, limits, [SPEC], template.tokenizer))
    format = loop.format()
    policy = PlainText(
        Player(turns), TemplateBuilder(template), template.tokenizer, {"logprobs": True},
        prompt_length=8192, response_length=8192, engine_stops=False, format=format,
    )  # fmt: skip
    prompt = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "What is 6*7?"}]
    trajectory = await loop.run_row(
        {"raw_prompt": prompt, "extra_info": {**info, "tools": [SPEC.schema()]}}, policy, format
    )
    assert trajectory.error is None
    return trajectory, policy.sequences()


@cache
def templates(tiny: Any) -> list[ChatTemplate]:
    """The tiny model's, one that drops thoughts, and those of published models where they are."""
    thinking = ChatTemplate(type(tiny).from_pretrained(tiny.name_or_path))
    thinking.tokenizer.chat_template = THINKING
    return [ChatTemplate(tiny), thinking, *(ChatTemplate(real_tokenizer(name), name=name) for name in REAL)]


async def test_tokens_masks_and_log_probs_equal_those_of_tool_call_agent(tokenizer: Any) -> None:
    async def converse(number: int) -> Trajectory:
        template = (all_templates := templates(tokenizer))[number % len(all_templates)]
        turns = script(template, random.Random(number))
        trajectory, sequences = await play("tool_call_agent", template, turns)
        seen, own = await play(
            "gateway_agent", template, turns[: len(trajectory.turns)], observations=observations(trajectory)
        )
        assert own == sequences, (template.name, number)
        assert len(sequences) == 1
        assert len(seen.turns) == len(trajectory.turns)
        assert trajectory.answer in (seen.answer, None)  # None: too many unreadable turns
        return trajectory

    played = []
    for number in range(0, CONVERSATIONS, AT_ONCE):
        played += await asyncio.gather(*map(converse, range(number, number + AT_ONCE)))
    await gateway().stop()
    assert sum(each.malformed_turns for each in played) >= 20
    assert sum(len(each.results) for each in played) >= 200
