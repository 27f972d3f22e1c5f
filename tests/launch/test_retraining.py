"""Which runs may train on which recorded runs, before anything is started."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.errors import ConfigError
from agent_rl.launch.composition import compose
from agent_rl.launch.retraining import differences, recorded_run
from agent_rl.launch.run_folder import RunFolder
from agent_rl.preflight.case import RunCase
from agent_rl.trajectory import Score, StopReason, Trajectory, trace
from agent_rl.trajectory.trace.batches import append_batch

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


class Runs:
    """A recorded run of two steps, and the runs that shall train on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, folder / "model"
        shutil.copytree(ROOT / "recipes/quickstart/model", self.model)
        rows = [arithmetic.to_row(each, "train", at) for at, each in enumerate(arithmetic.train_test(0, 4, 1)[0])]
        write_parquet(rows, folder / "train.parquet")
        self.record("a")
        for step in (1, 2):
            self.append(f"u{step}_0", step)
            append_batch(folder / "a/trace.jsonl", trace.TrainedBatch(step, 0, [f"u{step}_0_0"], [0.5]))

    def append(self, id: str, step: int) -> None:
        sequence = {"prompt_ids": [1], "response_ids": [2, 3], "mask": [1, 1], "logprobs": [-1.0, -1.0], "images": 0}
        info = {"step": step, "split": "train", "tokens": {"messages": [], "tools": [], "sequences": [sequence]}}
        own = Trajectory([], StopReason.ANSWERED, id=id, info=info, score=Score(1.0))
        trace.append(self.folder / "a/trace.jsonl", own)

    def compose(self, name: str, *words: str, model: Path | None = None) -> Any:
        return compose(
            ROOT / "recipes/quickstart",
            [
                f"data.train_files={self.folder}/train.parquet",
                f"actor_rollout_ref.model.path={model or self.model}",
                f"agent_rl.run.folder={self.folder}/{name}",
                "trainer.total_training_steps=2",
                *words,
            ],
        )

    def record(self, name: str, *words: str) -> None:
        with RunFolder(self.compose(name, *words)):
            pass

    def again(self, *words: str, model: Path | None = None) -> Any:
        return self.compose("b", "policy=trace", f"agent_rl.policy.trace={self.folder}/a", *words, model=model)

    def problems(self, *words: str, model: Path | None = None) -> dict[str, str]:
        found = {}
        for error in recorded_run.found(RunCase(config=self.again(*words, model=model))):
            assert isinstance(error, ConfigError), error
            assert error.remedy
            found.setdefault(error.key, error.problem)  # the first is raised
        return found

    def notes(self, *words: str, model: Path | None = None) -> list[str]:
        return differences(str(self.folder / "a"), RunFolder(self.again(*words, model=model)).record)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def own_runs(tmp_path: Path) -> Runs:
    """Runs whose files a test may change."""
    return Runs(tmp_path)


def test_the_same_run_and_one_with_other_updates_are_accepted(runs: Runs) -> None:
    updates = ("algo=turn", "kl=loss", "correction=tis", "actor_rollout_ref.actor.optim.lr=1e-5")
    assert runs.problems() == runs.problems(*updates, "agent_rl.mask_void=turn") == {}
    assert runs.notes() == [f"this run trains on the trajectories of {runs.folder}/a, without an engine"]
    _, text = runs.notes("algo=rloo", "actor_rollout_ref.actor.optim.lr=1e-5")
    assert text.startswith(f"actor_rollout_ref.actor.optim.lr, algorithm.adv_estimator differ from {runs.folder}/a: ")
    assert "(off-policy)" in text


def test_without_the_word_nothing_is_checked(runs: Runs) -> None:
    assert list(recorded_run.found(RunCase(config=runs.compose("b", "trainer.test_freq=5")))) == []


@pytest.mark.parametrize(
    ("word", "key", "message"),
    [
        ("mode=colocate_async", "trainer.v1.trainer_mode", "does not work with mode=colocate_async"),
        ("trainer.test_freq=5", "trainer.test_freq", "a validation needs an engine"),
        ("trainer.val_before_train=true", "trainer.val_before_train", "a validation needs an engine"),
        ("algo=dapo", "algorithm.filter_groups.enable", "depending on when their episodes end"),
        ("algo=remax", "actor_rollout_ref.rollout.agent.agent_loop_manager_class", "ReMaxAgentLoopManager"),
        ("actor_rollout_ref.rollout.temperature=0.5", "actor_rollout_ref.rollout.temperature", "0.5, was 1.0"),
        ("actor_rollout_ref.rollout.n=2", "actor_rollout_ref.rollout.n", "is 2, was 8"),
        ("agent_rl.reward.format.weight=0.5", "agent_rl.reward.format.weight", "as they were recorded"),
        ("data.seed=3", "data.seed", "is 3, was None"),
        ("trainer.total_training_steps=3", "trainer.total_training_steps", "step 3 of 3 is not in"),
        ("agent_rl.run.folder={}/a", "agent_rl.run.folder", "names the same folder"),
        (
            "agent_rl.policy.trace={}/missing",
            "agent_rl.policy.trace",
            "missing/run.json cannot be read (there is no such file",
        ),
    ],
)
def test_what_the_trace_cannot_give_is_refused_by_name(runs: Runs, word: str, key: str, message: str) -> None:
    assert message in runs.problems(word.format(runs.folder))[key]


def test_other_rows_another_model_and_an_incomplete_trace_are_refused(own_runs: Runs) -> None:
    write_parquet(
        [arithmetic.to_row(arithmetic.train_test(1, 1, 1)[0][0], "train", 0)], own_runs.folder / "train.parquet"
    )
    assert "the content of" in own_runs.problems()["data.train_files"]
    shutil.copytree(own_runs.model, own_runs.folder / "other")
    assert "actor_rollout_ref.model.path" not in own_runs.problems(model=own_runs.folder / "other")  # the same files
    (own_runs.folder / "other/tokenizer.json").write_text("{}")
    assert (
        "another model, with a different tokenizer.json"
        in own_runs.problems(model=own_runs.folder / "other")["actor_rollout_ref.model.path"]
    )
    (own_runs.folder / "a/trace.tokens.jsonl").unlink()
    assert "has no tokens of u1_0" in own_runs.problems()["agent_rl.policy.trace"]
    (own_runs.folder / "a/trace.batches.jsonl").unlink()
    assert "has no training batches" in own_runs.problems()["agent_rl.policy.trace"]


def test_an_asynchronous_run_is_refused(own_runs: Runs) -> None:
    own_runs.record("a", "mode=colocate_async")
    assert "was 'colocate_async'" in own_runs.problems()["trainer.v1.trainer_mode"]


def test_what_may_change_the_weights_is_named(own_runs: Runs) -> None:
    shutil.copytree(own_runs.model, own_runs.folder / "other")
    with open(own_runs.folder / "other/model.safetensors", "ab") as file:
        file.write(b"\0")
    assert own_runs.problems(model=own_runs.folder / "other") == {}
    record = own_runs.folder / "a/run.json"
    about = json.loads(record.read_text())
    about["versions"]["torch"], about["machine"]["cores"] = "1.0", 99
    record.write_text(json.dumps(about))
    text = own_runs.notes(model=own_runs.folder / "other")[-1]
    assert "may not be bit-equal" in text
    assert text.endswith("because of different first weights (model.safetensors), versions (torch), machine (cores)")
