"""Loops that are made and run as verl's worker does it."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("verl")

from agent_rl import ReactAgentLoop, trace
from agent_rl.agents.episode.budget import DEFAULT_MAX_TURNS, FINAL_TURN
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.metrics import counted
from agent_rl.tools.cassette import CassetteMissError
from agent_rl.trajectory import StopReason
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop
from tests.agents.server import THINKING, Server, make_loop

ROOT = Path(__file__).parents[2]
ACT = 'Thought: x\nAction: calculator\nAction Input: {"expression": "6*7"}'
ANSWER = "Thought: done\nFinal Answer: 42"
CALCULATOR = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/calculator.yaml"

RESERVE_TOO_LONG = ["final_turn.reserve_seconds=5", "budget.max_seconds=5"]
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


def test_the_reward_stands_on_the_last_token_that_is_trained_on(run):
    """verl's GAE, REINFORCE++ and ReMax do not read it elsewhere."""
    output, _ = run(ACT, ANSWER)
    output.reward_score, output.response_mask = 0.5, [*output.response_mask[:-2], 0, 0]
    scores = output.as_dict()["rm_scores"]
    assert (scores[-3], scores.sum()) == (0.5, 0.5)


def test_trajectory_goes_along_with_what_the_row_knows(run):
    output, _ = run(ACT, ANSWER)
    trajectory = output.extra_fields["trajectory"]
    assert trajectory.id == "u_2"
    assert trajectory.agent == "react_agent"
    assert trajectory.data_source == "test"
    assert trajectory.ground_truth == "42"
    assert trajectory.info == {"step": 3, "split": "train", "index": 7}
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    assert trajectory.prompt_tokens == len(output.prompt_ids)
    assert trajectory.response_tokens == len(output.response_ids)


@pytest.mark.parametrize(("mode", "trained"), [("none", True), ("turn", False), ("trajectory", False)])
def test_a_void_turn_is_left_out_of_the_loss(run, tokenizer, mode, trained):
    output, _ = run("Hm.", ACT, ANSWER, overrides=(CALCULATOR, f"+agent_rl.mask_void={mode}"))
    mask, ids = output.response_mask, output.response_ids
    kept = tokenizer.decode([token for token, each in zip(ids, mask, strict=True) if each])
    assert ("Hm." in kept) == trained
    assert (ANSWER in kept) == (mode != "trajectory")
    assert len(mask) == len(ids) == len(output.response_logprobs)
    assert output.extra_fields["trajectory"].turns[0].malformed


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


def test_without_logprobs_there_are_none_in_the_output(run):
    output, _ = run(ANSWER, sampling={**SAMPLING, "logprobs": False})
    assert output.response_logprobs is None


def test_row_without_optional_columns_runs(run):
    row = {"extra_info": None, "reward_model": None, "tools_kwargs": None, "index": None}
    output, _ = run(ACT, ANSWER, row=row)
    assert output.extra_fields["trajectory"].answer == "42"


def test_sampling_parameters_of_the_worker_reach_the_server(run):
    _, server = run(ANSWER)
    params = server.requests[0]["params"]
    assert params == {**SAMPLING, "max_new_tokens": 512}


def test_stops_are_sent_when_the_engine_has_a_tokenizer(run):
    _, server = run(ANSWER, overrides=(CALCULATOR, "actor_rollout_ref.rollout.skip_tokenizer_init=False"))
    assert server.requests[0]["params"]["stop"] == ["\nObservation:"]


def test_row_selects_its_tools(run, tokenizer, tmp_path):
    path = tmp_path / "tools.yaml"
    path.write_text(
        "tools:\n  - name: calculator\n  - {name: other, description: Another one., "
        "class_name: agent_rl.tools.builtin.calculator.Calculator}\n"
    )
    overrides = [f"actor_rollout_ref.rollout.multi_turn.tool_config_path={path}"]
    row = {"extra_info": {"tool_selection": ["other"]}}
    output, server = run(ACT, ANSWER, overrides=overrides, row=row)
    prompt = tokenizer.decode(server.requests[0]["ids"])
    assert "other: Another one." in prompt
    assert "calculator:" not in prompt
    assert output.extra_fields["trajectory"].turns[0].results[0].status == "unknown_tool"
    output, server = run(ACT, ANSWER, overrides=overrides)
    assert "calculator:" in tokenizer.decode(server.requests[0]["ids"])
    assert output.extra_fields["trajectory"].turns[0].results[0].status == "ok"


def test_row_that_selects_an_unknown_tool_is_unscored(run):
    with pytest.raises(UnscoredError, match=r"tool_selection names \['serach'\].*calculator"):
        run(ANSWER, row={"extra_info": {"tool_selection": ["serach"]}})


def test_row_gives_its_tools_their_arguments(run, tmp_path):
    (tmp_path / "shop.py").write_text(
        "from agent_rl.tools import Tool, ToolOutput\n\n\n"
        "class Shop(Tool):\n"
        "    name, description = 'shop', 'd'\n"
        "    parameters = {'type': 'object', 'properties': {'item': {'type': 'string'}}}\n\n"
        "    async def call(self, arguments):\n"
        "        return ToolOutput(str(self.create_kwargs['prices'][arguments['item']]), reward=0.25)\n"
    )
    path = tmp_path / "tools.yaml"
    path.write_text("tools:\n  - class_name: shop.py:Shop\n")
    output, _ = run(
        "Action: shop\nAction Input: pear",
        ANSWER,
        overrides=[f"actor_rollout_ref.rollout.multi_turn.tool_config_path={path}"],
        row={"tools_kwargs": {"shop": {"create_kwargs": {"prices": {"pear": 3}}}}},
    )
    assert output.extra_fields["trajectory"].turns[0].observation == "Observation: 3"
    assert output.extra_fields["tool_rewards"] == [0.25]


def test_result_is_cut_as_verl_is_configured(run, tmp_path):
    output, _ = run(
        ACT.replace("6*7", "2**400"),
        ANSWER,
        overrides=[
            CALCULATOR,
            "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=10",
            "actor_rollout_ref.rollout.multi_turn.tool_response_truncate_side=right",
        ],
    )
    observation = output.extra_fields["trajectory"].turns[0].observation
    assert observation == f"Observation: {str(2**400)[:10]}...(111 characters cut)..."


def test_result_is_cut_in_the_models_tokens_when_so_configured(run, tokenizer):
    output, _ = run(
        ACT.replace("6*7", "2**400"),
        ANSWER,
        overrides=[
            CALCULATOR,
            "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=10",
            "+agent_rl.tools.max_result_tokens=60",
        ],
    )
    (result,) = output.extra_fields["trajectory"].turns[0].results
    head, tail = re.fullmatch(r"(\d+)\.\.\.\(\d+ characters cut\)\.\.\.(\d+)", result.text).groups()
    assert str(2**400).startswith(head)
    assert str(2**400).endswith(tail)
    assert 50 <= len(tokenizer.encode(result.text, add_special_tokens=False)) <= 60


DICE = """
import random
from agent_rl.tools import Tool
class Dice(Tool):
    name, description, parameters = "dice", "d", {"type": "object", "properties": {"sides": {"type": "integer"}}}
    async def call(self, arguments):
        return str(random.randint(1, 10**12))
"""


def test_recorded_rollout_is_replayed(run, tmp_path):
    (tmp_path / "dice.py").write_text(DICE)
    (tmp_path / "tools.yaml").write_text("tools:\n  - class_name: dice.py:Dice\n")

    def roll(mode, session_id, *turns):
        overrides = [
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path}/tools.yaml",
            f"+agent_rl.tools.cassette.mode={mode}",
            f"+agent_rl.tools.cassette.path={tmp_path}/cassette.jsonl",
        ]
        output, _ = run(*turns, overrides=overrides, row={"session_id": session_id})
        return [result for turn in output.extra_fields["trajectory"].turns for result in turn.results]

    act = 'Action: dice\nAction Input: {"sides": 6}'
    recorded = {session_id: roll("record", session_id, act, act, ANSWER) for session_id in range(3)}
    assert len({result.text for results in recorded.values() for result in results}) == 6
    for session_id in (2, 0, 1):
        assert roll("replay", session_id, act, act, ANSWER) == recorded[session_id]
    with pytest.raises(CassetteMissError, match=r'no recorded call dice \{"sides":7\}.*The nearest is dice'):
        roll("replay", 0, act.replace("6", "7"), ANSWER)


def test_cached_results_are_kept_in_the_configured_file(run, tmp_path):
    path = tmp_path / "tools.yaml"
    path.write_text("tools:\n  - {name: calculator, cache: shared}\n")
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={path}",
        f"+agent_rl.tools.cache_path={tmp_path}/cache.sqlite",
    ]
    for cached in ({}, {"cached": True}):
        output, _ = run(ACT, ANSWER, overrides=overrides)
        (result,) = output.extra_fields["trajectory"].turns[0].results
        assert (result.text, result.metrics) == ("42", cached)
    assert (tmp_path / "cache.sqlite").exists()


def test_engine_failure_is_unscored_and_kept_in_the_trace(run, tmp_path, caplog):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(UnscoredError, match="RuntimeError: connection lost"):
        run(ACT, RuntimeError("connection lost"), overrides=[CALCULATOR, f"+agent_rl.trace.path={path}"])
    (trajectory,) = trace.read(path)
    assert trajectory.stop_reason is StopReason.ENGINE_ERROR
    assert trajectory.error == "RuntimeError: connection lost"
    assert len(trajectory.turns) == 1
    assert (trajectory.id, trajectory.ground_truth) == ("u_2", "42")
    assert "unscored trajectory u_2: RuntimeError: connection lost" in caplog.text


def test_failure_before_the_first_turn_is_kept_in_the_trace(run, tmp_path):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(UnscoredError, match=r"data\.max_prompt_length=16"):
        run(ANSWER, overrides=[CALCULATOR, "data.max_prompt_length=16", f"+agent_rl.trace.path={path}"])
    (trajectory,) = trace.read(path)
    assert trajectory.stop_reason is StopReason.ERROR
    assert trajectory.error.startswith("the prompt has")
    assert trajectory.prompt[-1].content == "What is 6*7?"


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


def test_final_turn_is_as_configured(run, tokenizer):
    overrides = [
        CALCULATOR,
        "+agent_rl.final_turn.enabled=true",
        "+agent_rl.final_turn.reserve_tokens=200",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2",
    ]
    output, server = run(ACT, ANSWER, overrides=overrides)
    trajectory = output.extra_fields["trajectory"]
    assert trajectory.stop_reason == "answered"
    assert trajectory.turns[0].observation == f"Observation: 42\n\n{FINAL_TURN}"
    assert FINAL_TURN in tokenizer.decode(server.requests[1]["ids"])
    assert server.requests[0]["params"]["max_new_tokens"] == 512 - 200
    output, _ = run(ACT, ANSWER, overrides=[*overrides, "+agent_rl.final_turn.text=Now."])
    assert output.extra_fields["trajectory"].turns[0].observation == "Observation: 42\n\nNow."


@pytest.mark.parametrize(
    ("key", "values"),
    [("reserve_tokens", ["final_turn.reserve_tokens=512"]), ("reserve_seconds", RESERVE_TOO_LONG)],
)
def test_final_turn_that_leaves_nothing_for_others_is_refused(run, key, values):
    overrides = [CALCULATOR, "+agent_rl.final_turn.enabled=true", *(f"+agent_rl.{value}" for value in values)]
    with pytest.raises(ConfigError) as caught:
        run(ANSWER, overrides=overrides)
    assert caught.value.key == f"agent_rl.final_turn.{key}"


def test_repeats_are_limited_and_answered_from_memory_as_configured(run):
    output, _ = run(ACT, ACT, ACT, overrides=[CALCULATOR, "+agent_rl.budget.max_repeats=2"])
    trajectory = output.extra_fields["trajectory"]
    assert trajectory.stop_reason == "repetition"
    results = [result for turn in trajectory.turns for result in turn.results]
    assert [result.metrics for result in results] == [{}, {"cached": True}]
    output, _ = run(ACT, ACT, ANSWER, overrides=[CALCULATOR, "+agent_rl.tools.reuse_results=false"])
    results = [result for turn in output.extra_fields["trajectory"].turns for result in turn.results]
    assert [result.metrics for result in results] == [{}, {}]


def test_hooks_are_made_for_every_episode(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from agent_rl.agents.episode.hooks import Hooks\n\n\nclass Mine(Hooks):\n    turns = 0\n\n"
        "    async def after_turn(self, trajectory, turn):\n        self.turns += 1\n        return self.turns == 2\n"
    )
    for _ in range(2):
        output, _ = run(ACT, ACT, ANSWER, overrides=[CALCULATOR, f"+agent_rl.hooks='{tmp_path}/mine.py:Mine'"])
        assert output.extra_fields["trajectory"].stop_reason == "stopped"
        assert len(output.extra_fields["trajectory"].turns) == 2


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


def test_unknown_setting_stops_the_run(run):
    with pytest.raises(Exception, match=r"agent_rl\.budget\.max_tool_cals") as caught:
        run(ANSWER, overrides=[CALCULATOR, "+agent_rl.budget.max_tool_cals=1"])
    assert isinstance(caught.value.__cause__, ConfigError)


def test_turns_are_limited_by_verls_key(run):
    output, _ = run(ACT, ACT, overrides=[CALCULATOR, "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2"])
    assert output.extra_fields["trajectory"].stop_reason == "max_turns"
    assert output.num_turns == 4


def test_turns_are_limited_without_a_key(run):
    output, _ = run(*[ACT] * 20, overrides=[CALCULATOR, "data.max_response_length=4096"])
    assert output.extra_fields["trajectory"].stop_reason == "max_turns"
    assert len(output.extra_fields["trajectory"].turns) == DEFAULT_MAX_TURNS


def test_response_of_an_episode_never_exceeds_the_budget(run):
    for length in (40, 41, 60, 100, 101, 150):
        output, _ = run(*[ACT] * 8, overrides=[CALCULATOR, f"data.max_response_length={length}"])
        assert len(output.response_ids) == len(output.response_mask) <= length
        assert output.response_mask[-1] == 1
        assert output.extra_fields["trajectory"].stop_reason == "max_tokens"


def test_row_without_tools_runs(run):
    output, _ = run(ANSWER, overrides=())
    assert output.extra_fields["trajectory"].answer == "42"


def test_loop_without_a_format_says_what_is_missing():
    class Unfinished(EpisodeAgentLoop):
        pass

    with pytest.raises(TypeError, match=r"abstract class Unfinished .*format"):
        Unfinished()
