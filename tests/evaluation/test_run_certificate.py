"""`agent-rl certify run`: every planted fault is found by the line that is about it, and clean runs raise no alarm."""

import copy
import functools
import json
import math
import operator
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_rl.agents.policies.chat_template import USER
from agent_rl.errors import ConfigError
from agent_rl.evaluation.model_log_probs import ModelLogProbs
from agent_rl.evaluation.run_certificate import _estimator, _word, certify_run
from agent_rl.evaluation.run_checks import check_masks
from agent_rl.evaluation.run_record import StoredSample
from agent_rl.launch.composition import compose, resolved
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.run_files import leaves
from agent_rl.trajectory.trace.batches import append_batch
from agent_rl.verl_adapter.inspection import load_chat_tokenizer
from agent_rl.verl_adapter.stragglers import EndedEarlyError
from tests.evaluation.made_runs import MODEL, dump, play, stored, unscored, write
from tests.support.cli import invoke, printed, shown
from tests.support.profiles import FULL, bounded

pytestmark = pytest.mark.trainer

ALGORITHMS = [file.stem for file in sorted(Path("agent_rl/config/algo").glob("*.yaml"))]
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """A dump of 16 trajectories, one of which has no score."""
    trajectories = play(tmp_path_factory.mktemp("clean"))
    unscored(trajectories[5])
    return dump(trajectories)


@pytest.fixture(scope="module")
def another_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The taught model, some training steps away."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("models") / "another"
    shutil.copytree(MODEL, folder)
    torch.manual_seed(0)
    weights = load_file(folder / "model.safetensors")
    moved = {name: tensor + 0.3 * tensor.float().std() * torch.randn(tensor.shape) for name, tensor in weights.items()}
    save_file({name: moved[name].to(weights[name].dtype) for name in moved}, folder / "model.safetensors")
    return str(folder)


def sequences(line: dict[str, Any]) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = line["info"]["tokens"]["sequences"]
    return own


def several_turns(lines: Lines) -> dict[str, Any]:
    """A trajectory with two turns that is trained on."""
    return next(line for line in lines if len(line["turns"]) > 1 and line["info"]["rows"])


def lost_separator(lines: Lines) -> None:
    """The newline between the end of a turn and the next message."""
    own = sequences(several_turns(lines))[0]
    place = own["mask"].index(0, own["mask"].index(1))
    for name in ("response_ids", "mask", "logprobs"):
        del own[name][place]


def drifted_token(lines: Lines) -> None:
    """Another token than the engine's, as after tokenizing the text again."""
    line = several_turns(lines)
    sequences(line)[0]["response_ids"][2] ^= 1


def drifted_token_without_ids(lines: Lines) -> None:
    """The same where nobody kept the engine's ids and the texts: the model finds the token improbable."""
    drifted_token(lines)
    for line in lines:
        del line["info"]["sampled_ids"]
        for turn in line["turns"]:
            turn["text"] = ""


def mask_on_an_observation(lines: Lines) -> None:
    own = sequences(several_turns(lines))[0]
    own["mask"][own["mask"].index(0, own["mask"].index(1)) + 3] = 1


def shifted_mask(lines: Lines) -> None:
    own = sequences(several_turns(lines))[0]
    own["mask"] = [*own["mask"][1:], own["mask"][0]]


def trained_twice(lines: Lines) -> None:
    rows = lines[0]["info"]["rows"]
    rows.append({**rows[0], "update": 1})


def shared_prefix_trained_per_branch(lines: Lines) -> None:
    """A tree whose root is in two sequences."""
    rows, own = lines[0]["info"]["rows"], sequences(lines[0])
    own.append(copy.deepcopy(own[0]))
    rows.append({**rows[0], "sequence": 1})


def missing_token(lines: Lines) -> None:
    """The end of a turn, which the policy sampled."""
    own = sequences(several_turns(lines))[0]
    end = own["mask"].index(0, own["mask"].index(1))
    own["mask"][end - 1], own["logprobs"][end - 1] = 0, 0.0


def reward_that_is_not_its_components(lines: Lines) -> None:
    lines[0]["score"]["total"] += 0.1


def unscored_counted_as_scored(lines: Lines) -> None:
    """A trajectory without a score is trained on."""
    line = next(line for line in lines if line["score"] is None)
    line["info"]["rows"] = [{"sequence": 0, "step": 1, "update": 0, "row": 0, "advantage": -0.5}]


def unscored_in_the_mean(lines: Lines) -> None:
    """It is not trained on, but counts as 0 in the mean of its group."""
    group = next(line for line in lines if line["score"] is None)["id"].split("_")[0]
    own = [line for line in lines if line["id"].startswith(f"{group}_") and line["score"]]
    mean = sum(line["score"]["total"] for line in own) / (len(own) + 1)
    for line in own:
        line["info"]["rows"][0]["advantage"] = line["score"]["total"] - mean


def late_log_probs(lines: Lines) -> None:
    for line in lines:
        for own in sequences(line):
            values = [0.0, *own["logprobs"][:-1]]
            own["logprobs"] = [value if mask else 0.0 for value, mask in zip(values, own["mask"], strict=True)]


def infinite_component(lines: Lines) -> None:
    lines[0]["score"]["components"][next(iter(lines[0]["score"]["weights"]))] = math.inf


FAULTS: dict[Callable[[Lines], None], set[str]] = {
    lost_separator: {"masks"},
    drifted_token: {"tokens", "masks"},
    drifted_token_without_ids: {"log-probs"},
    mask_on_an_observation: {"tokens", "masks"},
    shifted_mask: {"tokens", "masks"},
    trained_twice: {"tokens"},
    shared_prefix_trained_per_branch: {"tokens"},
    missing_token: {"tokens", "masks"},
    reward_that_is_not_its_components: {"rewards"},
    unscored_counted_as_scored: {"rewards"},
    unscored_in_the_mean: {"advantages"},
    late_log_probs: {"log-probs"},
    infinite_component: {"rewards"},
}
"""The planted faults, with the lines that must report them."""
WRONG: list[tuple[str, Any, set[str]]] = [
    ("info.rows", [], {"tokens"}),
    ("id", "u1_9", {"rewards"}),
    ("score.total", math.nan, {"rewards"}),
    ("score", {"total": math.inf, "components": {}, "weights": {}}, {"rewards"}),
    ("info.rows.0.advantage", math.nan, {"advantages"}),
    ("info.tokens.sequences.0.logprobs.0", math.nan, {"masks", "log-probs"}),
    ("info.tokens.sequences.0.logprobs.0", 0.3, {"masks"}),
    ("info.tokens.sequences", [], {"tokens"}),
]
"""Values that the first trajectory cannot have."""


def problems(path: Path, **options: Any) -> dict[str, list[str]]:
    options = {"weights": {0: str(MODEL)}, "algo": "grpo", **options} if path.is_file() else options
    return {line.check: line.problems for line in certify_run(path, **options) if line.status == "problem"}


def test_the_clean_dump_has_no_problem(clean: Lines, tmp_path: Path) -> None:
    lines = certify_run(write(clean, tmp_path / "dump.jsonl"), weights={0: str(MODEL)}, algo="grpo")
    assert {line.check: line.status for line in lines} == {
        **dict.fromkeys(("tokens", "masks", "log-probs", "sampling", "rewards", "advantages"), "ok"),
        **dict.fromkeys(("estimator", "dropped"), "ok"),
        **dict.fromkeys(("images", "reward"), "not checked"),
    }
    assert "6.2% lost" in next(line.text for line in lines if line.check == "dropped")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: Callable[[Lines], None], clean: Lines, tmp_path: Path) -> None:
    lines = copy.deepcopy(clean)
    fault(lines)
    assert problems(write(lines, tmp_path / "dump.jsonl")).keys() >= FAULTS[fault]


@pytest.mark.parametrize(("key", "value", "found"), WRONG)
def test_an_impossible_value_is_found(key: str, value: Any, found: set[str], clean: Lines, tmp_path: Path) -> None:
    *parts, last = (int(part) if part.isdigit() else part for part in key.split("."))
    lines = copy.deepcopy(clean)
    functools.reduce(operator.getitem, parts, lines[0])[last] = value
    assert problems(write(lines, tmp_path / "dump.jsonl")).keys() >= found


def test_a_dump_without_tokens_is_not_ok(clean: Lines, tmp_path: Path) -> None:
    lines = copy.deepcopy(clean)
    for line in lines:
        line["info"]["tokens"]["sequences"] = []
    options: Any = {"weights": {0: str(MODEL)}, "algo": "grpo"}
    found = {line.check: line for line in certify_run(write(lines, tmp_path / "dump.jsonl"), **options)}
    assert found["tokens"].problems[0] == f"{lines[0]['id']}: the trainer used it, but its tokens are not stored"
    for check in ("masks", "advantages"):
        assert found[check].status == "not checked"
        assert found[check].text == "no tokens were stored: set agent_rl.trace.tokens=true"


def test_a_template_that_rejects_a_message_of_the_user(clean: Lines) -> None:
    chat = load_chat_tokenizer(str(MODEL))

    def merge(context: Any, messages: list[Any], ids: list[int]) -> Any:
        if messages == [USER]:
            raise ValueError("unknown role")
        return chat.builder.merge_context_tokens(context, messages, ids)

    builder = SimpleNamespace(template=None, merge_context_tokens=merge)
    lines = copy.deepcopy(clean)
    own = sequences(several_turns(lines))[0]
    own["response_ids"][own["mask"].index(0, own["mask"].index(1))] ^= 1
    samples = [StoredSample(Trajectory.from_json(json.dumps(line)), [], "kept", 1.0) for line in lines]
    (problem,) = check_masks(samples, SimpleNamespace(tokenizer=chat.tokenizer, builder=builder))
    assert "follows a turn instead of" in problem


def recompute(lines: Lines, model: str) -> None:
    """Record the log-probs of another model."""
    compute = ModelLogProbs(model)
    for own in chain.from_iterable(map(sequences, lines)):
        values = compute([*own["prompt_ids"], *own["response_ids"]])[len(own["prompt_ids"]) - 1 :]
        own["logprobs"] = [value if mask else 0.0 for value, mask in zip(values, own["mask"], strict=True)]


def test_log_probs_of_another_model(clean: Lines, another_model: str, tmp_path: Path) -> None:
    lines = copy.deepcopy(clean)
    recompute(lines, another_model)
    assert problems(write(lines, tmp_path / "dump.jsonl")).keys() == {"log-probs"}


def test_stale_weights(clean: Lines, another_model: str, tmp_path: Path) -> None:
    """The trajectories of step 2 were sampled with the weights of step 1."""
    lines = copy.deepcopy(clean)
    for line in lines:
        line["info"]["step"] = 2
        for row in line["info"]["rows"]:
            row["step"] = 2
    path = write(lines, tmp_path / "dump.jsonl")
    assert problems(path, weights={1: another_model, 2: str(MODEL)}) == {}
    (found,) = problems(path, weights={1: str(MODEL), 2: another_model})["log-probs"]
    assert "log-probs fit earlier weights better" in found


@pytest.mark.parametrize("temperature", [0.3, 1.5])
def test_a_clients_temperature(temperature: float, tmp_path: Path) -> None:
    """The recorded log-probs are those of the requested temperature, so only the tokens themselves tell."""
    lines = dump(play(tmp_path, temperature=temperature, n=8))
    recompute(lines, str(MODEL))
    found = problems(write(lines, tmp_path / "dump.jsonl"))
    assert found.keys() == {"sampling"}
    assert f"temperature {0.5 if temperature < 1 else 1.25}" in found["sampling"][0]


def test_sampling_with_top_p_is_not_checked(clean: Lines, tmp_path: Path) -> None:
    lines = copy.deepcopy(clean)
    lines[0]["info"]["truncated"] = True
    found = certify_run(write(lines, tmp_path / "dump.jsonl"), weights={0: str(MODEL)}, algo="grpo")
    assert {line.check for line in found if line.status == "not checked"} == {"images", "sampling", "reward"}


def test_log_probs_do_not_depend_on_the_size_of_the_parts(clean: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    own, compute = sequences(clean[0])[0], ModelLogProbs(str(MODEL))
    ids = [*own["prompt_ids"], *own["response_ids"]]
    whole = compute.at_temperatures(ids, [1.0, 0.5])
    assert whole.shape == (2, len(ids) - 1)
    monkeypatch.setattr("agent_rl.evaluation.model_log_probs.PART", 7)
    assert compute.at_temperatures(ids, [1.0, 0.5]) == pytest.approx(whole)


def test_an_image_beyond_the_limit(clean: Lines, tmp_path: Path) -> None:
    """The tokens were cut, and the trainer got an image without a placeholder."""
    shutil.copytree(MODEL, tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    token = sequences(clean[0])[0]["prompt_ids"][0]
    (tmp_path / "model/config.json").write_text(json.dumps(config | {"image_token_id": 10_000}))
    lines = copy.deepcopy(clean)
    for own in chain.from_iterable(map(sequences, lines)):
        own["prompt_ids"] += [10_000, 10_000, token, 10_000, 10_000]
        own["images"] = 2
    options = {"tokenizer": str(tmp_path / "model")}
    assert problems(write(lines, tmp_path / "dump.jsonl"), **options) == {}
    del sequences(lines[3])[0]["prompt_ids"][-3:]
    found = problems(write(lines, tmp_path / "dump.jsonl"), **options)
    assert found["images"] == [f"{lines[3]['id']}: the tokens show 1 images, but the trainer got 2"]


AGENTS = ("react_agent", "tool_call_agent", "code_act_agent", "plan_act_agent", "folding_agent", "search_agent")
FOLD = ("agent_rl.folding.reserve_tokens=32",)
CLEAN = [
    *[(agent, FOLD, FOLD, 1.0) for agent in AGENTS],
    *[("react_agent", (), (), temperature) for temperature in (0.5, 0.8, 1.3, 2.0)],
    ("react_agent", ("agent_rl.mask_void=turn",), ("agent_rl.mask_void=turn",), 1.0),
    ("react_agent", ("agent_rl.mask_void=trajectory",), ("agent_rl.mask_void=trajectory",), 1.0),
    ("react_agent", (), ("agent_rl.mask_overlong=true",), 1.0),
    ("tool_call_agent", ("agent_rl.mask_void=turn",), ("agent_rl.mask_void=turn",), 0.9),
    ("react_agent", ("multi_turn.max_assistant_turns=1",), (), 1.0),
    ("react_agent", ("agent_rl.final_turn.enabled=true",), (), 1.0),
    ("react_agent", ("agent_rl.reward.format.weight=0.5",), ("agent_rl.reward.format.weight=0.5",), 1.0),
    ("plan_act_agent", (), ("algo=dapo",), 1.0),
    ("code_act_agent", (), (), 0.7),
    ("folding_agent", FOLD, FOLD, 1.2),
]


@bounded
@pytest.mark.parametrize("case", range(20) if FULL else (0, 3, 4, 10))
def test_a_clean_run_raises_no_alarm(case: int, tmp_path: Path) -> None:
    agent, words, keys, temperature = CLEAN[case]
    trajectories = play(tmp_path, agent, words, temperature=temperature, seed=case)
    for trajectory in trajectories[:: 5 + case] if case % 3 == 0 else ():
        unscored(trajectory)
    keys = (*keys, f"actor_rollout_ref.rollout.temperature={temperature}")
    found = certify_run(stored(tmp_path / "run", trajectories, *keys))
    assert {line.check: line.problems for line in found if line.status == "problem"} == {}
    by_check = {line.check: line.status for line in found}
    assert all(by_check[name] == "ok" for name in ("tokens", "masks", "log-probs", "sampling", "advantages", "rewards"))


@bounded
@pytest.mark.parametrize("algo", ALGORITHMS if FULL else ("dr_grpo", "turn"))
def test_a_run_finds_the_certificate_of_its_algorithm(algo: str) -> None:
    keys = dict(leaves(resolved(compose("recipes/quickstart", [f"algo={algo}", "kl=loss"]))))
    line = _estimator(_word(keys), keys)
    assert line.text.startswith(f"algo={algo}: ")
    assert line.text.endswith("it does not cover actor_rollout_ref.actor.use_kl_loss=True")
    keys["actor_rollout_ref.actor.loss_agg_mode"] = "seq-mean-token-sum"
    assert _estimator(_word(keys), keys).status == "not checked"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    trajectories = play(tmp_path_factory.mktemp("played"), n=3)
    return stored(tmp_path_factory.mktemp("run"), trajectories)


def test_the_command_prints_a_page(folder: Path) -> None:
    result = printed("certify", "run", folder)
    assert result["ok"]
    assert len(result["lines"]) == 10
    assert "not checked  images" in shown("certify", "run", folder)


def test_a_batch_with_a_trajectory_that_is_not_in_the_trace(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    append_batch(tmp_path / "run/trace.jsonl", trace.TrainedBatch(2, 0, ["u9_0_0"], [0.5]))
    with pytest.raises(ConfigError, match="this trace lacks: u9_0"):
        certify_run(tmp_path / "run")


def test_a_reward_that_can_be_gamed_is_a_problem(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "gamed.py").write_text("def compute_score(solution_str, **_):\n    return len(solution_str) / 1000\n")
    about = json.loads((folder / "run.json").read_text())
    about["configuration"]["reward"]["custom_reward_function"]["path"] = str(tmp_path / "gamed.py")
    (tmp_path / "run/run.json").write_text(json.dumps(about))
    assert problems(tmp_path / "run").keys() == {"reward"}
    about["configuration"]["reward"]["custom_reward_function"]["path"] = str(tmp_path / "missing.py")
    (tmp_path / "run/run.json").write_text(json.dumps(about))
    (line,) = (line for line in certify_run(tmp_path / "run") if line.check == "reward")
    assert line.status == "not checked"
    assert "the reward cannot be loaded" in line.text


def test_a_run_whose_model_is_not_here_is_checked_as_far_as_possible(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    about["configuration"]["actor_rollout_ref"]["model"]["path"] = str(tmp_path / "missing")
    (tmp_path / "run/run.json").write_text(json.dumps(about))
    status = {line.check: line.status for line in certify_run(tmp_path / "run")}
    assert {name for name, each in status.items() if each == "not checked"} == {
        *("masks", "images", "log-probs", "sampling")
    }
    assert "problem" not in status.values()
    with pytest.raises(ConfigError, match="there is no tokenizer"):
        certify_run(folder, tokenizer=str(tmp_path / "missing"))


def test_a_damaged_model_of_the_run_is_not_checked(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    shutil.copytree(MODEL, tmp_path / "model")
    (tmp_path / "model/model.safetensors").write_bytes((MODEL / "model.safetensors").read_bytes()[:3000])
    about = json.loads((folder / "run.json").read_text())
    about["configuration"]["actor_rollout_ref"]["model"]["path"] = str(tmp_path / "model")
    (tmp_path / "run/run.json").write_text(json.dumps(about))
    found = {line.check: line for line in certify_run(tmp_path / "run")}
    assert {name for name, line in found.items() if line.status == "not checked"} == {"images", "log-probs", "sampling"}
    assert "transformers cannot load" in found["log-probs"].text
    with pytest.raises(ConfigError, match="--model: transformers cannot load"):
        certify_run(folder, weights={0: str(tmp_path / "model")})


def test_a_trajectory_that_was_ended_early_is_not_lost(tmp_path: Path) -> None:
    trajectories = play(tmp_path, n=2)
    trajectories[0].score, trajectories[0].error = None, f"CancelledError: {EndedEarlyError()}"
    found = {line.check: line for line in certify_run(stored(tmp_path / "run", trajectories))}
    assert "12.5% ended, 12.5% evicted" in found["dropped"].text
    assert found["reward"].text.endswith("raise or escape the reward")


def test_only_the_repeated_steps_of_a_resumed_run_are_unused(tmp_path: Path) -> None:
    run, first, second = tmp_path / "run", play(tmp_path, n=2), play(tmp_path, n=2)
    for number, own in enumerate(first):
        own.id, own.ended = f"v{number // 2}_{number % 2}", 100.0
        trace.append(run / "trace.jsonl", own)
    append_batch(run / "trace.jsonl", trace.TrainedBatch(1, 0, [f"{own.id}_0" for own in first], [0.5] * len(first)))
    for own in second:
        own.ended = 200.0
    stored(run, second)
    about = json.loads((run / "run.json").read_text())
    about["started"] = ["1970-01-01T00:00:10+0000", "1970-01-01T00:02:30+0000"]
    (run / "run.json").write_text(json.dumps(about))
    found = {line.check: line for line in certify_run(run)}
    assert found["tokens"].status == "ok"
    assert "50.0% kept, 50.0% unused" in found["dropped"].text
    batch = list(trace.read_batches(run / "trace.jsonl"))[-1]
    append_batch(run / "trace.jsonl", trace.TrainedBatch(1, 0, batch.names[1:], batch.advantages[1:]))
    assert problems(run)["tokens"] == [f"{second[0].id}: the trajectory has a reward, but is in no batch"]
    append_batch(run / "trace.jsonl", trace.TrainedBatch(1, 0, [f"{own.id}_0" for own in first], [0.5] * len(first)))
    assert "tokens" not in problems(run)  # the run was resumed, and ended before it repeated the update


LINE = '{"version": 1, "id": "a_0", "prompt": [], "stop_reason": "answered", "info": %s}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "line 1: Expecting value"),
        ('{"id": "a"}', "line 1: trajectory version None cannot be read"),
        (LINE % "{}", "line 1: .*Input should be a valid dictionary"),
        (LINE % '{"tokens": {"messages": [], "tools": [], "sequences": []}}', "line 1: .*should be a valid list"),
        (
            LINE % '{"tokens": {"messages": [], "tools": [], "sequences": []}, "rows": [], "temperature": 0}',
            "greater than 0",
        ),
        ("", "there is no training trajectory"),
    ],
)
def test_mistakes_in_a_dump_are_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dump.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=said):
        certify_run(tmp_path / "dump.jsonl")
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        certify_run(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match=r"run\.json"):
        certify_run(tmp_path)


def test_a_dump_without_options_is_checked_as_far_as_possible(clean: Lines, tmp_path: Path) -> None:
    found = {line.check: line for line in certify_run(write(clean, tmp_path / "dump.jsonl"))}
    assert {name for name, line in found.items() if line.status == "ok"} == {"tokens", "rewards", "dropped"}
    assert found["masks"].text == "pass --tokenizer"
    assert found["advantages"].text == found["estimator"].text == "pass --algo"


def test_the_model_of_a_dump_may_be_given_for_one_step(clean: Lines, tmp_path: Path) -> None:
    path = write(clean, tmp_path / "dump.jsonl")
    done = invoke("certify", "run", path, "--model", f"1={MODEL}", "--algo", "rloo", "--json")
    assert done.exit_code == 1
    found = {line["check"]: line for line in json.loads(done.stdout)["lines"]}
    assert found["log-probs"]["status"] == "ok"
    assert found["advantages"]["status"] == "problem"  # they are GRPO's
