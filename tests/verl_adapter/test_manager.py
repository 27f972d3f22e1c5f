import asyncio
import json
import pickle
import shlex
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl")
hydra = pytest.importorskip("hydra")

from tensordict import TensorDict  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput  # noqa: E402
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager  # noqa: E402
from verl.trainer.ppo.reward import load_reward_manager  # noqa: E402
from verl.utils.tensordict_utils import list_of_dict_to_tensordict  # noqa: E402

from agent_rl import trace  # noqa: E402
from agent_rl.agents.episode.loop import new_trajectory  # noqa: E402
from agent_rl.errors import ConfigError, UnscoredError  # noqa: E402
from agent_rl.rewards.compose import extra_info  # noqa: E402
from agent_rl.settings import RewardSettings  # noqa: E402
from agent_rl.trajectory import Message, StopReason, ToolCall, Turn  # noqa: E402
from agent_rl.user_code import UserCodeError  # noqa: E402
from agent_rl.verl_adapter import sampled_scores  # noqa: E402
from agent_rl.verl_adapter.manager import TrajectoryRewardManager  # noqa: E402
from agent_rl.verl_adapter.outputs import EpisodeOutput, give_trajectory  # noqa: E402
from tests.http_faults import FaultyServer, answer  # noqa: E402
from tests.scoring import score  # noqa: E402

ROW = {
    "data_source": "gsm8k",
    "raw_prompt": [{"role": "user", "content": "6*7?"}],
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 7, "split": "train"},
    "index": 7,
    "uid": "u",
}
INFO = {"step": None, "split": "train", "index": 7}


@pytest.fixture(scope="module")
def tokenizer():
    """One token a byte, and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<end>")


@pytest.fixture(scope="module")
def compose():
    """The configuration that verl's trainer would run with."""

    @cache
    def _compose(*overrides):
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            return hydra.compose("ppo_trainer", overrides=["reward.reward_manager.name=trajectory", *overrides])

    return _compose


@pytest.fixture
def run(tokenizer, compose):
    """Load the manager as verl's reward worker does, and score each batch with it, all at once."""

    def _run(*batches, overrides=(), **kwargs):
        async def main():
            manager = load_reward_manager(compose(*overrides), tokenizer, **kwargs)
            assert type(manager) is TrajectoryRewardManager
            return await asyncio.gather(*(manager.run_single(batch) for batch in batches))

        results = asyncio.run(main())
        return results[0] if len(batches) == 1 else results

    return _run


@pytest.fixture
def batch(tokenizer):
    """What the agent loop worker's `_compute_score` sends: one row for each training sequence of a trajectory."""

    def _batch(*outputs, row=ROW, manager=TrajectoryRewardManager):
        prompts = [tokenizer(prompt)["input_ids"] for prompt, _, _ in outputs]
        responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for _, text, _ in outputs]
        last = AgentLoopOutput(
            prompt_ids=prompts[-1], response_ids=responses[-1], response_mask=[], metrics=AgentLoopMetrics()
        )
        last.extra_fields = outputs[-1][2]
        give_trajectory(last, row, tokenizer, manager)
        joined = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
        tensors = {
            "prompts": _padded(prompts),
            "responses": _padded(responses),
            "attention_mask": _padded([[1] * len(ids) for ids in joined]),
            "input_ids": _padded(joined),
            "position_ids": _padded([list(range(len(ids))) for ids in joined]),
        }
        rows = {
            **{key: np.array([value] * len(outputs)) for key, value in row.items()},
            "__num_turns__": np.array([2] * len(outputs)),
            "tool_extra_fields": np.array([*(extra for _, _, extra in outputs[:-1]), last.extra_fields], dtype=object),
            "prompt_len": np.array([len(ids) for ids in prompts]),
            "response_len": np.array([len(ids) for ids in responses]),
        }
        data = DataProto(batch=TensorDict(tensors, batch_size=len(outputs)), non_tensor_batch=rows)
        return pickle.loads(pickle.dumps(data))  # it reaches the manager through Ray

    return _batch


def _padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in rows], batch_first=True, padding_value=0)


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
    return ("6*7?", "call 42", {"trajectory": trajectory, "turn_scores": []})


@pytest.fixture
def custom(tmp_path):
    """Overrides that name a custom reward function with the given source."""

    def _custom(source):
        path = tmp_path / "custom_reward.py"
        path.write_text(source)
        return [f"reward.custom_reward_function.path={path}"]

    return _custom


def test_a_handed_over_trajectory_is_scored(run, batch):
    trajectory = _trajectory()
    result = run(batch(_handed_over(trajectory)))
    expected = score(trajectory, RewardSettings())
    assert result == {"reward_score": expected.total, "reward_extra_info": extra_info(trajectory, expected)}
    assert result["reward_score"] == 1.0


def test_weights_come_from_the_settings(run, batch):
    overrides = ["+agent_rl.reward.correctness.weight=2", "+agent_rl.reward.efficiency.free_calls=4"]
    result = run(batch(_handed_over(_trajectory())), overrides=overrides)
    assert result["reward_score"] == pytest.approx(2.0 - 0.1)


SCHEDULE = ["+agent_rl.reward.correctness.weight={start: 0, end: 1, to_step: 100}"]


def test_a_weight_schedule_counts_for_verls_own_loops(run, batch):
    row = {**ROW, "agent_name": "single_turn_agent", "data_source": "openai/gsm8k", "global_steps": 25}
    assert run(batch(("6*7?", "#### 42", {}), row=row), overrides=SCHEDULE)["reward_score"] == pytest.approx(0.25)


def test_late_scoring_hands_over_the_trajectories_of_all_loops(run, tokenizer, monkeypatch):
    trajectory = _trajectory(verdict=0.5)
    numbers = {"prompt_ids": [1], "response_mask": [1] * 7, "num_turns": 2, "metrics": AgentLoopMetrics()}
    ours = EpisodeOutput(**numbers, response_ids=[2] * 7, extra_fields={"trajectory": trajectory})
    verls = AgentLoopOutput(**numbers, response_ids=tokenizer("#### 42")["input_ids"])
    give_trajectory(verls, ROW, tokenizer, TrajectoryRewardManager)
    fields = [{**output.as_dict(), **ROW} for output in (ours, verls)]

    def stored(select_fields, **_):
        return list_of_dict_to_tensordict([{name: field[name] for name in select_fields} for field in fields])

    monkeypatch.setattr(sampled_scores.tq, "kv_batch_get", stored)
    data = sampled_scores._as_handed_over(["u_0_0", "u_1_0"], "train")
    assert data.non_tensor_batch["tool_extra_fields"][0] == {"trajectory": trajectory}
    assert [each["reward_extra_info"]["acc"] for each in run(data[:1], data[1:])] == [0.5, 1.0]


def test_the_overlong_penalty_knows_the_limit(run, batch):
    overrides = ["+agent_rl.reward.overlong.penalty=1", "data.max_response_length=100"]
    info = run(batch(_handed_over(_trajectory(response_tokens=90))), overrides=overrides)["reward_extra_info"]
    assert info["overlong"] == -0.5


def test_a_worker_that_hands_over_no_trajectory_is_named(run, batch):
    with pytest.raises(ConfigError, match="handed over None instead of a trajectory") as caught:
        run(batch(("p", "41", {}), manager=NaiveRewardManager))
    assert caught.value.key == "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


def test_of_several_sequences_the_last_one_counts(run, batch):
    outputs = [("p", "a much longer response", {}), _handed_over(_trajectory(answer="41"))]
    assert run(batch(*outputs))["reward_extra_info"]["acc"] == 0.0
    assert run(batch(*reversed(outputs), ("p", "41", {})))["reward_extra_info"]["acc"] == 0.0
    assert run(batch(*outputs, _handed_over(_trajectory())))["reward_extra_info"]["acc"] == 1.0


@pytest.mark.parametrize("text", ["#### 42", "\u4e2d\n#### 42"])
def test_a_foreign_loop_is_judged_by_its_response(run, batch, tmp_path, text):
    path = tmp_path / "trace.jsonl"
    outputs = [("prompt", "a much longer response", {}), ("6*7?", text, {})]
    result = run(batch(*outputs), overrides=[f"+agent_rl.trace.path={path}"])
    (kept,) = trace.read(path)
    assert result["reward_score"] == 1.0
    assert set(result["reward_extra_info"]) == set(extra_info(kept, kept.score))
    assert (kept.prompt, kept.answer) == ([Message("user", "6*7?")], text)
    assert (kept.turns[0].text, kept.turns[0].tokens) == (text, len(text.encode()) + 1)
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


def test_a_component_sees_the_rows_columns(run, batch, tmp_path):
    (tmp_path / "mine.py").write_text(LEVEL)
    row = {**ROW, "extra_info": {**ROW["extra_info"], "bonus": 0.5}, "level": 3}
    overrides = (f"+agent_rl.reward.components.level.kind={tmp_path}/mine.py:Level",)
    result = run(batch(("6*7?", "42", {}), row=row), overrides=overrides)
    assert result["reward_extra_info"]["level"] == 3.5


MISSPELT = LEVEL.replace('row["level"]', 'row["levle"]')


def command(words, **kwargs):
    """The process of a command that a message shows."""
    program, *words = shlex.split(words)
    assert program == "agent-rl"
    command = [sys.executable, "-m", "agent_rl.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **kwargs)


def test_a_component_that_raises_is_fatal_and_the_command_repeats_the_call(run, batch, tmp_path):
    (tmp_path / "mine.py").write_text(MISSPELT)
    row = {**ROW, "extra_info": {**ROW["extra_info"], "bonus": 0.5}, "level": 3}
    overrides = (
        f"+agent_rl.reward.components.level.kind={tmp_path}/mine.py:Level",
        f"trainer.default_local_dir={tmp_path}/checkpoints",
        f"+agent_rl.trace.path={tmp_path}/trace.jsonl",
    )
    with pytest.raises(UserCodeError) as caught:
        run(batch(_handed_over(_trajectory(row))), overrides=overrides)
    text, _, again = str(pickle.loads(pickle.dumps(caught.value))).partition("Repeat the call with: ")
    assert text == f"level failed at {tmp_path}/mine.py:7: KeyError: 'levle'. The trajectory is 'u_0'. "
    (kept,) = trace.read(tmp_path / "trace.jsonl")
    assert str(caught.value) in kept.error
    done = command(again)
    assert done.returncode != 0
    assert f"level failed at {tmp_path}/mine.py:7: KeyError: 'levle'" in done.stderr
    assert 'trajectory.row["levle"]' in done.stderr
    (tmp_path / "mine.py").write_text(LEVEL)
    done = command(f"{again} --json")  # after the fix
    assert json.loads(done.stdout)["all"]["components"]["level"]["mean"] == 3.5, done.stderr


def test_a_foreign_row_may_be_multimodal_and_sparse(run, batch):
    content = [{"type": "image"}, {"type": "text", "text": "6*7?"}]
    sparse = {"data_source": "gsm8k", "raw_prompt": [{"role": "user", "content": content}]}
    sparse["reward_model"] = {"ground_truth": np.int64(42)}
    assert run(batch(("p", "#### 42", {}), row=sparse))["reward_score"] == 1.0


def test_the_trace_keeps_the_score(run, batch, tmp_path):
    path = tmp_path / "new" / "trace.jsonl"
    trajectory = _trajectory(id="u_0")
    batches = [batch(_handed_over(trajectory))] * 20
    run(*batches, overrides=[f"+agent_rl.trace.path={path}"])
    kept = list(trace.read(path))
    assert len(kept) == 20
    assert kept[0].score == score(trajectory, RewardSettings())
    assert (kept[0].turns, kept[0].error) == (trajectory.turns, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_reason": StopReason.ENGINE_ERROR, "error": "engine gone"}, "engine gone"),
        ({"stop_reason": StopReason.ERROR, "error": "boom"}, "boom"),
        ({"ground_truth": "Paris"}, "data_source 'gsm8k', index 7"),
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


def test_a_row_without_ground_truth_is_unscored(run, batch):
    row = {key: value for key, value in ROW.items() if key != "reward_model"}
    with pytest.raises(UnscoredError, match="index 7"):
        run(batch(("6*7?", "42", {}), row=row))


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
    ],
)
def test_a_custom_function_that_fails_is_traced(run, batch, custom, tmp_path, body, error, message):
    path = tmp_path / "trace.jsonl"
    overrides = [*custom(f"def compute_score(**kwargs):\n    {body}\n"), f"+agent_rl.trace.path={path}"]
    overrides.append(f"trainer.default_local_dir={tmp_path}")
    with pytest.raises(error, match=message):
        run(batch(_handed_over(_trajectory())), overrides=overrides)
    (kept,) = trace.read(path)
    assert message in kept.error
    assert kept.score is None


def test_the_command_repeats_the_call_of_a_custom_function(run, batch, custom, tmp_path):
    source = "def compute_score(solution_str, bonus, **kwargs):\n    return len(solution_str) / bonus\n"
    overrides = [*custom(source), "+reward.custom_reward_function.reward_kwargs.bonus=0"]
    overrides.append(f"trainer.default_local_dir={tmp_path}")
    with pytest.raises(UserCodeError) as caught:
        run(batch(_handed_over(_trajectory(id="u_0"))), overrides=overrides)
    done = command(str(caught.value).partition("Repeat the call with: ")[2])
    assert done.returncode != 0
    assert f"failed at {tmp_path}/custom_reward.py:2: ZeroDivisionError" in done.stderr
    custom(source.replace("/", "+"))
    again = command(f"{str(caught.value).partition('Repeat the call with: ')[2]} --json")
    assert json.loads(again.stdout)["all"]["components"]["correctness"]["mean"] == len("call 42"), again.stderr


def test_a_custom_function_is_not_asked_about_a_failure_of_the_engine(run, batch, custom):
    overrides = custom("def compute_score(**kwargs):\n    raise AssertionError\n")
    with pytest.raises(UnscoredError, match="engine_error"):
        run(batch(_handed_over(_trajectory(stop_reason=StopReason.ENGINE_ERROR))), overrides=overrides)


def test_a_wrong_key_fails_at_the_start(run):
    with pytest.raises(ConfigError, match="Did you mean 'penalty'") as caught:
        run(overrides=["+agent_rl.reward.efficiency.penalti=1"])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.key == "agent_rl.reward.efficiency.penalti"


def test_a_trace_that_cannot_be_written_fails_at_the_start(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"agent_rl\.trace\.path: the trace cannot be written"):
        run(overrides=[f"+agent_rl.trace.path={tmp_path}/file/trace.jsonl"])


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
        result = run(batch(("p", "r", {"trajectory": trajectory})), overrides=overrides)
    assert result["reward_extra_info"]["correctness"] == 0.5
    assert {json.loads(request.body)["memory_limit_MB"] for request in server.requests} == {77}
