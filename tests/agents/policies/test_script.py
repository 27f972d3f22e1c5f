"""A scripted episode has the tokens and the mask that verl's trainer gets for the same turns."""

import asyncio
import json

import pytest

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.policies.script import ScriptedTokens
from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.agents.registry import make_loop
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter.inspection import load_specs

pytestmark = pytest.mark.trainer

TOOLS = "tool_configs/calculator.yaml"
REACT = (
    'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "6*7"}',
    "Thought: Use tool.\nAction calculator(6*7)",
    "Thought: I have it.\nFinal Answer: 42",
)
NATIVE = (
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>',
    "It is 42.",
)


@pytest.mark.parametrize(
    ("agent", "turns", "length"),
    [("react_agent", REACT, 512), ("react_agent", REACT, 90), ("tool_call_agent", NATIVE, 512)],
)
def test_tokens_and_mask_are_those_of_training(run_loop, tokenizer, builder, agent, turns, length):
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={TOOLS}",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=8",
        "actor_rollout_ref.rollout.multi_turn.format=hermes",
        f"data.max_response_length={length}",
    ]
    trained, _ = run_loop(agent, *turns, overrides=overrides)
    trained = trained[0] if isinstance(trained, list) else trained

    seen = []

    def script():
        for turn in turns:
            seen.append((yield turn))

    limits = EpisodeLimits(response_length=length, max_assistant_turns=8, format="hermes")
    loop = make_loop(agent, EpisodeSetup(AgentRLSettings(), limits, load_specs(TOOLS), tokenizer))
    format = loop.format()
    policy = ScriptedTokens(script(), ChatTokenizer(tokenizer, builder), length, format)
    row = {"raw_prompt": [{"role": "user", "content": "Question?"}], "uid": "u", "session_id": 0}
    asyncio.run(loop.run_row(row, policy, format))
    (sequence,) = policy.record()["sequences"]

    assert sequence["prompt_ids"] == list(trained.prompt_ids)
    assert sequence["response_ids"] == list(trained.response_ids)
    assert sequence["mask"] == list(trained.response_mask)
    if length == 512:
        assert "42" in seen[0]
        said = [token for token, kept in zip(sequence["response_ids"], sequence["mask"], strict=True) if kept]
        assert tokenizer.decode(said) == "".join(f"{turn}<|im_end|>" for turn in turns)
    assert json.dumps(policy.record())
