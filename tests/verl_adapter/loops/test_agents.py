"""Agents as verl's worker runs them: what they add to the policy's words is not trained on."""

import json
from pathlib import Path

import pytest

from tests.agents.server import Server

TOOL_FILE = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
CALCULATOR = f"{TOOL_FILE}={Path(__file__).parents[3]}/tool_configs/calculator.yaml"
SMALL = ["data.max_response_length=130", "+agent_rl.folding.reserve_tokens=60", "+agent_rl.folding.instructions=Notes"]


def test_any_of_our_loops_can_be_folded(run_loop, tokenizer):
    overrides = [CALCULATOR, *SMALL, "+agent_rl.folding.loop=user_sim_agent"]
    row = {"extra_info": {"user": {"replies": ["Go on. " * 25, "Thanks."]}}}
    outputs, _ = run_loop("folding_agent", "What? " * 10, "I asked.", "Bye.", "Bye!", overrides=overrides, **row)
    assert len(outputs) == 2
    assert outputs[1].extra_fields["trajectory"].answer == "Bye!"
    turns = [[turn for turn, *_ in each.extra_fields["turn_spans"]] for each in outputs]
    assert turns == [[1, 1], [2, 3]]  # the notes belong to the first turn
    assert "Go on. Go on." in tokenizer.decode(outputs[1].prompt_ids)


SEARCH = "<think>x</think>\n<search>Goethe</search>"
ANSWER = "<answer>Frankfurt</answer>"
FOUND = '<information>Doc 1(Title: "Goethe") Goethe was born in Frankfurt.</information>'


@pytest.fixture
def run(run_loop, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "b", "contents": '"Goethe"\nGoethe was born in Frankfurt.'}) + "\n")
    tools = tmp_path / "tools.yaml"
    tools.write_text(json.dumps({"tools": [{"name": "search", "config": {"corpus": str(corpus)}}]}))
    return lambda *turns: run_loop("search_agent", *turns, overrides=[f"{TOOL_FILE}={tools}"])


@pytest.mark.parametrize("continuation", ["", "\n<information>invented</information>\n<answer>Rome</answer>", " 日本"])
def test_closing_tag_is_trained_on_and_what_follows_is_not(run, tokenizer, continuation):
    output, _ = run(SEARCH + continuation, ANSWER)
    text = tokenizer.decode(output.response_ids)
    assert text == (
        f"{SEARCH}<|im_end|>\n<|im_start|>user\n{FOUND}<|im_end|>\n<|im_start|>assistant\n{ANSWER}<|im_end|>"
    )
    sampled = tokenizer.decode([i for i, m in zip(output.response_ids, output.response_mask, strict=True) if m])
    ended = "" if continuation else "<|im_end|>"  # sampled only where the policy ended the turn itself
    assert sampled == f"{SEARCH}{ended}{ANSWER}<|im_end|>"
    expected = [
        logprob if mask else 0.0
        for logprob, mask in zip(Server.logprobs(output.response_ids), output.response_mask, strict=True)
    ]
    assert output.response_logprobs == expected
    first, second = output.extra_fields["trajectory"].turns
    assert (first.text, first.observation, second.text) == (SEARCH, FOUND, ANSWER)
    assert output.extra_fields["trajectory"].answer == "Frankfurt"


USER = {"goal": "the secret", "replies": ["Order 17.", "Thanks."]}


def test_user_judges(run_loop, tmp_path):
    (tmp_path / "judge.py").write_text(
        "from agent_rl.agents.users.user import ScriptedUser\n\n\n"
        "class Judge(ScriptedUser):\n"
        "    async def score(self, trajectory):\n"
        "        return self.config['scale'] * len(trajectory.turns)\n\n"
        "    async def respond(self, message, trajectory):\n"
        "        reply = await super().respond(message, trajectory)\n"
        "        reply.reward = float(len(message))\n"
        "        return reply\n"
    )
    overrides = [f"+agent_rl.user_sim.user={tmp_path}/judge.py:Judge", "+agent_rl.user_sim.config.scale=0.25"]
    output, _ = run_loop("user_sim_agent", "a", "bb", "c", overrides=overrides, extra_info={"user": USER})
    assert output.extra_fields["trajectory"].verdict == 0.75
    assert output.extra_fields["turn_scores"] == [1.0, 2.0, 1.0]


def test_native_calls_beside_messages(run_loop, tokenizer):
    overrides = [CALCULATOR, "+agent_rl.user_sim.native=true"]
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
    output, _ = run_loop(
        "user_sim_agent", "Which?", call, "It is 42.", overrides=overrides, extra_info={"user": {"replies": ["6*7."]}}
    )
    first, second, last = output.extra_fields["trajectory"].turns
    assert (first.observation, second.results[0].text, last.text) == ("6*7.", "42", "It is 42.")
    assert "<|im_start|>user\n6*7.<|im_end|>" in tokenizer.decode(output.response_ids)
    assert "<tool_response>\n42\n</tool_response>" in tokenizer.decode(output.response_ids)
