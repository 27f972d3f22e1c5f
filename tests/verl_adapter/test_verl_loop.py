"""Loops that are made and run as verl's worker does it."""

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest
import transfer_queue

from agent_rl import ReactAgentLoop
from agent_rl.agents.episode.budget import DEFAULT_MAX_TURNS
from agent_rl.agents.sessions.server import gateway
from agent_rl.errors import UnscoredError
from agent_rl.rewards.metrics import counted
from agent_rl.trajectory import StopReason, trace
from tests.agents.server import THINKING, Server, make_loop
from tests.support.forks import python

ROOT = Path(__file__).parents[2]
ACT = 'Thought: x\nAction: calculator\nAction Input: {"expression": "6*7"}'
ANSWER = "Thought: done\nFinal Answer: 42"
CALCULATOR = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/calculator.yaml"

ROW = {
    "raw_prompt": [{"role": "user", "content": "What is 6*7?"}],
    "data_source": "test",
    "agent_name": "react_agent",
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 7, "split": "train"},
    "index": np.int64(7),
    "tools_kwargs": {},
    "uid": "u",
    "session_id": 2,
    "global_steps": np.int64(3),
}
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


@pytest.fixture
def run(compose, tokenizer):
    """Makes a loop as the worker does and runs it over one row."""

    def _run(*turns, overrides=(CALCULATOR,), tools=None, row=None, sampling=SAMPLING):
        config = compose(*overrides)
        server = Server(tokenizer, *turns)

        async def inside():
            loop = make_loop(config, server, tokenizer, tools=tools)
            assert type(loop) is ReactAgentLoop
            return await loop.run(sampling, **{**ROW, **(row or {})})

        return asyncio.run(inside()), server

    return _run


def test_output_is_what_verl_trains_on(run, tokenizer):
    output, server = run(ACT, ANSWER)
    assert output.prompt_ids == server.requests[0]["ids"]
    assert "calculator: Evaluate" in tokenizer.decode(output.prompt_ids)
    assert tokenizer.decode(output.response_ids) == (
        f"{ACT}<|im_end|>\n<|im_start|>user\nObservation: 42<|im_end|>\n<|im_start|>assistant\n{ANSWER}<|im_end|>"
    )
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    assert sum(output.response_mask) == len(server.encode(ACT)) + len(server.encode(ANSWER)) + 2
    assert output.num_turns == 4
    assert output.reward_score is None
    assert output.multi_modal_data == {}
    assert output.metrics.generate_sequences >= 0
    assert output.metrics.tool_calls > 0
    assert output.metrics.num_preempted == -1
    assert output.extra_fields["turn_scores"] == []
    assert output.extra_fields["tool_rewards"] == []
    assert set(output.as_dict()) >= {"prompts", "responses", "response_mask", "rollout_log_probs", "extra_fields"}
    trajectory = output.extra_fields["trajectory"]
    assert (trajectory.id, trajectory.agent, trajectory.data_source) == ("u_2", "react_agent", "test")
    assert trajectory.info == {"step": 3, "split": "train", "index": 7}
    assert (trajectory.ground_truth, trajectory.stop_reason, trajectory.answer) == ("42", StopReason.ANSWERED, "42")
    assert trajectory.prompt_tokens == len(output.prompt_ids)
    assert trajectory.response_tokens == len(output.response_ids)


def test_the_reward_stands_on_the_last_token_that_is_trained_on(run):
    """verl's GAE, REINFORCE++ and ReMax do not read it elsewhere."""
    output, _ = run(ACT, ANSWER)
    output.reward_score, output.response_mask = 0.5, [*output.response_mask[:-2], 0, 0]
    scores = output.as_dict()["rm_scores"]
    assert (scores[-3], scores.sum()) == (0.5, 0.5)


@pytest.mark.parametrize(("mode", "trained"), [("none", True), ("turn", False), ("trajectory", False)])
def test_a_void_turn_is_left_out_of_the_loss(run, tokenizer, mode, trained):
    output, _ = run("Hm.", ACT, ANSWER, overrides=(CALCULATOR, f"+agent_rl.mask_void={mode}"))
    mask, ids = output.response_mask, output.response_ids
    kept = tokenizer.decode([token for token, each in zip(ids, mask, strict=True) if each])
    assert ("Hm." in kept) == trained
    assert (ANSWER in kept) == (mode != "trajectory")
    assert len(mask) == len(ids) == len(output.response_logprobs)
    assert output.extra_fields["trajectory"].turns[0].malformed


def test_each_turn_has_its_tokens_and_its_state_also_if_it_is_not_trained_on(run, tokenizer):
    output, _ = run("Hm.", ACT, ANSWER, overrides=(CALCULATOR, "+agent_rl.mask_void=turn"))
    turns, starts, ends = zip(*output.extra_fields["turn_spans"], strict=True)
    pieces = [output.response_ids[start:end] for start, end in zip(starts, ends, strict=True)]
    assert turns == (1, 2, 3)
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in pieces] == ["Hm.", ACT, ANSWER]
    assert len(set(output.extra_fields["turn_states"])) == 3


@pytest.mark.parametrize(("masked", "length"), [(True, 40), (True, 512), (False, 40)])
def test_a_trajectory_that_the_token_budget_ended_is_left_out_of_the_loss(run, masked, length):
    limits = (CALCULATOR, f"data.max_response_length={length}", f"+agent_rl.mask_overlong={masked}")
    output, _ = run(ACT, ANSWER, overrides=limits)
    trajectory = output.extra_fields["trajectory"]
    left_out = masked and length == 40
    assert (trajectory.stop_reason is StopReason.MAX_TOKENS) == (length == 40)
    assert any(output.response_mask) != left_out
    assert len(output.response_mask) == len(output.response_ids)
    assert counted(trajectory)["left_out"] == left_out


def test_what_is_left_out_counts_in_its_group(run):
    """verl's GRPO over a trajectory that was cut off, with the reward 0, and one with the reward 1."""
    import numpy as np
    from torch.nn.utils.rnn import pad_sequence
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    fields = []
    for reward, length in ((0.0, 40), (1.0, 512)):
        limits = (CALCULATOR, f"data.max_response_length={length}", "+agent_rl.mask_overlong=true")
        output, _ = run(ACT, ANSWER, overrides=limits)
        output.reward_score = reward
        fields.append(output.as_dict())
    rewards, mask = (pad_sequence([each[name] for each in fields], True) for name in ("rm_scores", "response_mask"))
    advantages, _ = compute_grpo_outcome_advantage(rewards, mask.float(), np.array(["u", "u"]))
    assert not advantages[0].any()
    assert advantages[1].max() == pytest.approx(0.5**0.5, abs=1e-4)  # half a step from the mean of both


def test_sampling_parameters_of_the_worker_reach_the_server(run):
    output, server = run(ANSWER, overrides=(CALCULATOR, "actor_rollout_ref.rollout.skip_tokenizer_init=True"))
    assert server.requests[0]["params"] == {**SAMPLING, "max_new_tokens": 512}
    output, server = run(
        ANSWER,
        sampling={**SAMPLING, "logprobs": False},
        overrides=(CALCULATOR, "actor_rollout_ref.rollout.skip_tokenizer_init=False"),
    )
    assert output.response_logprobs is None
    assert server.requests[0]["params"]["stop"] == ["\nObservation:"]  # the engine has a tokenizer


@pytest.mark.parametrize("overrides", [(CALCULATOR,), ()], ids=["tools", "no tools"])
def test_row_without_optional_columns_runs(run, overrides):
    row = {"extra_info": None, "reward_model": None, "tools_kwargs": None, "index": None}
    output, _ = run(ANSWER, row=row, overrides=overrides)
    assert output.extra_fields["trajectory"].answer == "42"


@pytest.mark.parametrize(
    ("override", "message", "reason", "turns"),
    [
        ("data.max_response_length=512", "RuntimeError: connection lost", StopReason.ENGINE_ERROR, 1),
        ("data.max_prompt_length=16", "the prompt has", StopReason.ERROR, 0),
    ],
)
def test_a_failed_episode_is_unscored_and_kept_in_the_trace(run, tmp_path, caplog, override, message, reason, turns):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(UnscoredError, match=message):
        run(ACT, RuntimeError("connection lost"), overrides=[CALCULATOR, override, f"+agent_rl.trace.path={path}"])
    (trajectory,) = trace.read(path)
    assert trajectory.stop_reason is reason
    assert trajectory.error.startswith(message)
    assert (trajectory.id, trajectory.ground_truth, len(trajectory.turns)) == ("u_2", "42", turns)
    assert trajectory.prompt[-1].content == "What is 6*7?"
    assert f"unscored trajectory u_2: {trajectory.error}" in caplog.text


def test_settings_are_those_of_the_section(run, tokenizer, tmp_path):
    output, server = run(
        ACT,
        "hm",
        overrides=[CALCULATOR, "+agent_rl.react.instructions='Use {tool_names}.'", "+agent_rl.budget.max_malformed=1"],
    )
    assert tokenizer.decode(server.requests[0]["ids"]).startswith("<|im_start|>system\nUse calculator.<|im_end|>")
    assert output.extra_fields["trajectory"].stop_reason == "malformed"
    output, _ = run(ACT, ACT, overrides=[CALCULATOR, "+agent_rl.budget.max_tool_calls=1"])
    assert output.extra_fields["trajectory"].stop_reason == "max_tool_calls"


def test_episode_of_several_training_sequences_is_a_list_whose_last_has_the_trajectory(run, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", THINKING)
    turns = [f"<think>uno</think>{ACT}", f"<think>dos</think>{ANSWER}"]
    outputs, server = run(*turns, overrides=[CALCULATOR, "+agent_rl.thinking.history=template"])
    assert [len(output.prompt_ids) + output.response_mask.index(1) for output in outputs] == [
        len(request["ids"]) for request in server.requests
    ]
    assert ["trajectory" in output.extra_fields for output in outputs] == [False, True]
    assert all(set(output.extra_fields) >= {"turn_scores", "tool_rewards"} for output in outputs)
    output, _ = run(*turns)
    assert "uno" in tokenizer.decode(output.response_ids)


def test_turns_are_limited_by_verls_key(run):
    limit = "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2"
    for overrides, turns in ((limit, 2), ("data.max_response_length=4096", DEFAULT_MAX_TURNS)):
        output, _ = run(*[ACT] * 20, overrides=[CALCULATOR, overrides])
        assert output.extra_fields["trajectory"].stop_reason == "max_turns"
        assert len(output.extra_fields["trajectory"].turns) == turns == output.num_turns / 2


def test_a_program_that_crashes_after_a_turn_is_trained_on_and_reported(compose, tokenizer, tmp_path, monkeypatch):
    reports = {}

    async def put(key, partition_id, tag):
        reports[key] = tag

    monkeypatch.setattr(transfer_queue, "async_kv_put", put)
    (tmp_path / "crash.py").write_text(
        "import json, os, urllib.request\n"
        "body = json.dumps({'model': 'm', 'messages': [{'role': 'user', 'content': '?'}]}).encode()\n"
        "key = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "urllib.request.urlopen(urllib.request.Request(url, body, key)).read()\n"
        "{}['answer']\n"
    )
    config = compose(f"+agent_rl.gateway.command='{sys.executable} {tmp_path}/crash.py'")

    async def inside():
        try:
            loop = make_loop(config, Server(tokenizer, "Yes."), tokenizer, name="gateway_agent")
            return await loop.run(SAMPLING, **{**ROW, "agent_name": "gateway_agent"})
        finally:
            await gateway().stop()

    output = asyncio.run(inside())
    assert sum(output.response_mask) > 0
    trajectory = output.extra_fields["trajectory"]
    assert trajectory.verdict == 0.0
    assert {name: counted(trajectory)[name] for name in ("gateway_failed", "gateway_sequences")} == {
        "gateway_failed": 1.0, "gateway_sequences": 1.0,
    }  # fmt: skip
    report = reports["u_2_bug"]
    assert report["bug"] == f"KeyError at {tmp_path}/crash.py:6"
    assert report["scored"]
    assert "code 1: KeyError: 'answer'" in report["error"]


def test_a_collection_returns_the_free_pages_between_blocks_in_use() -> None:
    code = """
import gc, psutil
from agent_rl.verl_adapter.verl_loop import collect_rarely
known = len(gc.callbacks)
collect_rarely()
collect_rarely()
assert len(gc.callbacks) == known + 1
blocks = [bytearray(1000) for _ in range(100_000)]
blocks[:] = blocks[::100]
before = psutil.Process().memory_info().rss
gc.collect()
print(before - psutil.Process().memory_info().rss)
"""
    assert int(python(code)) > 50e6
