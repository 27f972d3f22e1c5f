import asyncio
import json
import os
import pickle
import shlex

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import load_reward_manager

from agent_rl.agents.episode.loop import new_trajectory
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.compose import extra_info
from agent_rl.settings import RewardSettings
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Message, StopReason, ToolCall, Turn, trace
from agent_rl.verl_adapter.manager import TrajectoryRewardManager
from agent_rl.verl_adapter.rollout import give_trajectory
from tests.support.forks import agent_rl
from tests.support.http_faults import FaultyServer, answer
from tests.support.scoring import score

ROW = {
    "data_source": "gsm8k",
    "raw_prompt": [{"role": "user", "content": "6*7?"}],
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 7, "split": "train"},
    "index": 7,
    "uid": "u",
}
INFO = {"step": None, "split": "train", "index": 7}


@pytest.fixture
def run(tokenizer, compose):
    """Load the manager as verl's reward worker does, and score each batch with it, all at once."""

    def _run(*batches, overrides=(), **kwargs):
        async def main():
            config = compose("reward.reward_manager.name=trajectory", *overrides)
            manager = load_reward_manager(config, tokenizer, **kwargs)
            assert type(manager) is TrajectoryRewardManager
            return await asyncio.gather(*(manager.run_single(batch) for batch in batches))

        results = asyncio.run(main())
        return results[0] if len(batches) == 1 else results

    return _run


@pytest.fixture
def batch(tokenizer):
    """What the agent loop worker's `_compute_score` sends: one row for each training sequence of a trajectory."""

    def _batch(*outputs, row=ROW, manager=TrajectoryRewardManager):
        responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text, _ in outputs]
        ids = {"prompt_ids": [1], "response_ids": responses[-1], "response_mask": []}
        last = AgentLoopOutput(**ids, metrics=AgentLoopMetrics())
        last.extra_fields = outputs[-1][1]
        give_trajectory(last, row, tokenizer, manager)
        tensors = {"responses": pad_sequence([torch.tensor(ids) for ids in responses], batch_first=True)}
        rows = {
            **{key: np.array([value] * len(outputs)) for key, value in row.items()},
            "__num_turns__": np.array([2] * len(outputs)),
            "tool_extra_fields": np.array([*(extra for _, extra in outputs[:-1]), last.extra_fields], dtype=object),
            "response_len": np.array([len(ids) for ids in responses]),
        }
        data = DataProto(batch=TensorDict(tensors, batch_size=len(outputs)), non_tensor_batch=rows)
        return pickle.loads(pickle.dumps(data))  # it reaches the manager through Ray

    return _batch


def _trajectory(row=ROW, **fields):
    trajectory = new_trajectory(row, "react_agent")
    values = {
        "stop_reason": StopReason.ANSWERED,
        "turns": [Turn("call", calls=[ToolCall("python")] * 5), Turn("42", malformed="odd")],
        "answer": "42",
        **fields,
    }
    for name, value in values.items():
        setattr(trajectory, name, value)
    return trajectory


def _handed_over(trajectory):
    return ("call 42", {"trajectory": trajectory, "turn_scores": []})


@pytest.fixture
def custom(tmp_path):
    """Overrides that name a custom reward function with the given source."""

    def _custom(source):
        path = tmp_path / "custom_reward.py"
        path.write_text(source)
        return [f"reward.custom_reward_function.path={path}"]

    return _custom


def test_a_handed_over_trajectory_is_scored_and_traced(run, batch, tmp_path):
    path = tmp_path / "new" / "trace.jsonl"
    trajectory = _trajectory(id="u_0")
    *_, result = run(*[batch(_handed_over(trajectory))] * 20, overrides=[f"+agent_rl.trace.path={path}"])
    expected = score(trajectory, RewardSettings())
    assert result == {"reward_score": expected.total, "reward_extra_info": extra_info(trajectory, expected)}
    assert result["reward_score"] == 1.0
    kept = list(trace.read(path))
    assert len(kept) == 20
    assert (kept[0].score, kept[0].turns, kept[0].error) == (expected, trajectory.turns, None)


def test_weights_limits_and_steps_come_from_the_configuration(run, batch, tokenizer):
    row = {**ROW, "agent_name": "single_turn_agent", "data_source": "openai/gsm8k", "global_steps": 25}
    overrides = [
        "+agent_rl.reward.correctness.weight={start: 0, end: 1, to_step: 100}",
        "+agent_rl.reward.overlong.penalty=1",
        f"data.max_response_length={len(tokenizer('#### 42')['input_ids']) + 1}",
    ]
    result = run(batch(("#### 42", {}), row=row), overrides=overrides)  # by a loop of verl's
    assert result["reward_extra_info"]["overlong"] < 0
    assert result["reward_score"] == pytest.approx(0.25 + result["reward_extra_info"]["overlong"])


def test_a_data_source_whose_answers_are_not_scored_has_no_accuracy(run, batch):
    sources = ("gsm8k", "game")
    batches = [batch(_handed_over(_trajectory({**ROW, "data_source": source}))) for source in sources]
    scored, unscored = run(*batches, overrides=["+agent_rl.reward.per_data_source.game.correctness.scorer=none"])
    assert scored["reward_extra_info"]["acc"] == 1.0
    assert set(scored["reward_extra_info"]) - set(unscored["reward_extra_info"]) == {"acc"}


def test_a_worker_that_hands_over_no_trajectory_is_named(run, batch):
    with pytest.raises(ConfigError, match="passed None instead of a trajectory") as caught:
        run(batch(("41", {}), manager=NaiveRewardManager))
    assert caught.value.key == "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


def test_of_several_sequences_the_last_one_counts(run, batch):
    outputs = [("a much longer response", {}), _handed_over(_trajectory(answer="41"))]
    assert run(batch(*outputs))["reward_extra_info"]["acc"] == 0.0
    assert run(batch(*reversed(outputs), ("41", {})))["reward_extra_info"]["acc"] == 0.0
    assert run(batch(*outputs, _handed_over(_trajectory())))["reward_extra_info"]["acc"] == 1.0


@pytest.mark.parametrize("text", ["#### 42", "\u4e2d\n#### 42"])
def test_a_foreign_loop_is_judged_by_its_response(run, batch, tokenizer, tmp_path, text):
    path = tmp_path / "trace.jsonl"
    outputs = [("a much longer response", {}), (text, {})]
    result = run(batch(*outputs), overrides=[f"+agent_rl.trace.path={path}"])
    (kept,) = trace.read(path)
    assert result["reward_score"] == 1.0
    assert set(result["reward_extra_info"]) == set(extra_info(kept, kept.score))
    assert (kept.prompt, kept.answer) == ([Message("user", "6*7?")], text)
    assert (kept.turns[0].text, kept.turns[0].tokens) == (text, len(tokenizer(text)["input_ids"]) + 1)
    assert (kept.data_source, kept.ground_truth, kept.info) == (
        "gsm8k",
        "42",
        {"step": None, "split": "train", "index": 7},
    )
    assert kept.row == {name: ROW[name] for name in ("data_source", "reward_model", "extra_info")}


LEVEL = """
from agent_rl import Component
from agent_rl.rewards import Value

class Level(Component):
    async def measure(self, trajectory):
        return Value(trajectory.row["level"] + trajectory.extra_info["bonus"])
"""


DIVIDES = "def compute_score(solution_str, bonus, **kwargs):\n    return len(solution_str) / bonus\n"


@pytest.mark.parametrize(
    ("overrides", "source", "mended", "problem", "component"),
    [
        (
            "+agent_rl.reward.components.level.kind={file}:Level",
            LEVEL.replace('row["level"]', 'row["levle"]'),
            LEVEL,
            "level failed at {file}:7: KeyError: 'levle'",
            ("level", 3.5),
        ),
        (
            "reward.custom_reward_function.path={file} +reward.custom_reward_function.reward_kwargs.bonus=0",
            DIVIDES,
            DIVIDES.replace("/", "+"),
            "reward.custom_reward_function failed at {file}:2: ZeroDivisionError: division by zero",
            ("correctness", len("call 42")),
        ),
    ],
    ids=["component", "function"],
)
def test_code_that_raises_is_fatal_and_the_command_repeats_the_call(
    run, batch, tmp_path, overrides, source, mended, problem, component
):
    file = tmp_path / "mine.py"
    file.write_text(source)
    folders = f"trainer.default_local_dir={tmp_path}/checkpoints +agent_rl.trace.path={tmp_path}/trace.jsonl"
    row = {**ROW, "extra_info": {**ROW["extra_info"], "bonus": 0.5}, "level": 3}
    with pytest.raises(UserCodeError) as caught:
        run(batch(_handed_over(_trajectory(row))), overrides=f"{overrides.format(file=file)} {folders}".split())
    text, _, again = str(pickle.loads(pickle.dumps(caught.value))).partition("Repeat the call with: ")
    assert text == f"{problem.format(file=file)}. The trajectory is 'u_0'. "
    (kept,) = trace.read(tmp_path / "trace.jsonl")
    assert str(caught.value) in kept.error
    words = shlex.split(again)[1:]
    done = agent_rl(*words)
    assert done.returncode != 0
    assert problem.format(file=file) in done.stderr
    file.write_text(mended)
    os.utime(file, (0, 0))  # of the same size, and perhaps written in the same second: its bytecode would be reused
    done = agent_rl(*words, "--json")
    assert json.loads(done.stdout)["all"]["components"][component[0]]["mean"] == component[1], done.stderr


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_reason": StopReason.ENGINE_ERROR, "error": "engine gone"}, "engine gone"),
        ({"stop_reason": StopReason.ERROR, "error": "boom"}, "boom"),
        ({"ground_truth": "Paris"}, "data_source 'gsm8k', index 7"),
        ({"ground_truth": None}, "index 7"),
    ],
)
def test_an_unscored_trajectory_raises_and_is_traced(run, batch, tmp_path, fields, message):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(UnscoredError, match=message) as caught:
        run(batch(_handed_over(_trajectory(**fields))), overrides=[f"+agent_rl.trace.path={path}"])
    pickle.loads(pickle.dumps(caught.value))
    (kept,) = trace.read(path)
    assert message in kept.error
    assert kept.score is None


CUSTOM = """
{keyword} compute_score(data_source, solution_str, ground_truth, extra_info):
    assert (data_source, ground_truth, extra_info["split"]) == ("gsm8k", "Paris", "train"), (data_source, ground_truth)
    assert solution_str == "call 42", solution_str
    assert (extra_info["num_turns"], type(extra_info["num_turns"])) == (2, int)
    assert extra_info["trajectory"]["answer"] == "42"
    return {result}
"""


@pytest.mark.parametrize("keyword", ["def", "async def"])
@pytest.mark.parametrize(
    ("result", "value", "logged"),
    [
        ("0.5", 0.5, {"acc": 0.5}),
        ("True", 1.0, {"acc": 1.0}),
        ("{'score': 0.5, 'acc': 1, 'style': 0.25, 'pred': 'text'}", 0.5, {"acc": 1.0, "style": 0.25}),
        ("{'score': __import__('numpy').float32(0.5)}", 0.5, {"acc": 0.5}),
    ],
)
def test_a_custom_function_decides_correctness(run, batch, custom, keyword, result, value, logged):
    trajectory = _trajectory(ground_truth="Paris")
    scored = run(batch(_handed_over(trajectory)), overrides=custom(CUSTOM.format(keyword=keyword, result=result)))
    expected = score(trajectory, RewardSettings(), verdict=value)
    assert scored["reward_score"] == expected.total
    assert scored["reward_extra_info"] == extra_info(trajectory, expected) | logged
    assert all(type(number) is float for number in scored["reward_extra_info"].values())


def test_a_custom_function_may_ask_a_reward_model(run, batch, custom):
    overrides = custom(
        "def compute_score(data_source, solution_str, ground_truth, extra_info, reward_router_address,"
        " reward_model_tokenizer, bonus):\n    return bonus * (reward_router_address == 'host:1')\n"
    )
    overrides.append("+reward.custom_reward_function.reward_kwargs.bonus=0.5")
    result = run(
        batch(_handed_over(_trajectory())),
        overrides=overrides,
        reward_router_address="host:1",
        reward_model_tokenizer=None,
    )
    assert result["reward_extra_info"]["correctness"] == 0.5


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return 'good'", ConfigError, "returned 'good'"),
        ("return None", ConfigError, "returned None"),
        ("return {'acc': 1}", ConfigError, "under 'score'"),
        ("return {'score': 1, 'turns': 2, 'reward': 1}", ConfigError, "returned reward, turns"),
        ("return float('nan')", UnscoredError, "score=nan"),
        ("raise KeyError('judge')", UserCodeError, "custom_reward.py:2: KeyError: 'judge'"),
        ("raise TimeoutError('judge')", UnscoredError, "TimeoutError: judge"),
        ("raise AssertionError", UnscoredError, "engine_error"),  # is not asked about a failure of the engine
    ],
)
def test_a_custom_function_that_fails_is_traced(run, batch, custom, tmp_path, body, error, message):
    path = tmp_path / "trace.jsonl"
    overrides = [*custom(f"def compute_score(**kwargs):\n    {body}\n"), f"+agent_rl.trace.path={path}"]
    overrides.append(f"trainer.default_local_dir={tmp_path}")
    fields = {"stop_reason": StopReason.ENGINE_ERROR} if message == "engine_error" else {}
    with pytest.raises(error, match=message):
        run(batch(_handed_over(_trajectory(**fields))), overrides=overrides)
    (kept,) = trace.read(path)
    assert message in kept.error
    assert kept.score is None


def test_verls_sandbox_fusion_runs_the_programs_of_code_rows(run, batch):
    """verl's three keys; what each program printed is compared here."""

    def run_code(handler):
        ran = {"status": "Finished", "return_code": 0, "stdout": "3\n"}
        answer(200, {"status": "Success", "compile_result": None, "run_result": ran})(handler)

    truth = {"style": "rule", "ground_truth": json.dumps({"inputs": ["1 2", "2 3"], "outputs": ["3", "5"]})}
    row = {**ROW, "data_source": "taco", "reward_model": truth}
    program = "```python\nprint(sum(map(int, input().split())))\n```"
    trajectory = _trajectory(row, answer=program)
    with FaultyServer(default=run_code) as server:
        overrides = (f"reward.sandbox_fusion.url={server.url}/run_code", "reward.sandbox_fusion.memory_limit_mb=77")
        result = run(batch(("r", {"trajectory": trajectory})), overrides=overrides)
    assert result["reward_extra_info"]["correctness"] == 0.5
    assert {json.loads(request.body)["memory_limit_MB"] for request in server.requests} == {77}
