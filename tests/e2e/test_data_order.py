"""Three mixed sets under an adaptive curriculum, the trainer killed, then stopped: the order follows from the rewards.

No other run draws its rows by what was rewarded.
"""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.data.order import RowFacts, RowOrder
from agent_rl.launch.process import TrainerError
from agent_rl.launch.stopping import StopRequest
from agent_rl.settings import DataSettings
from tests.e2e.conftest import FindProcesses, gone
from tests.e2e.training import PROMPTS, rollouts, train

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

SETS = {"set/a": 5, "set/b": 4, "set/c": 3}
SAVED, KILLED, LAST = 3, 4, 9
"""The steps of the checkpoint, of the kill, and at the end."""
DATA = {
    "weights": {"set/a": 2, "set/*": 1},
    "order": "shuffled",
    "measure": "score",
    "band": {"low": 0.3, "high": 0.7, "explore": 0.2},
    "replay": {"share": 0.2, "below": 0.3},
}


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_from_the_checkpoint_on_the_order_follows_from_the_logged_rewards(
    mode: str, tmp_path: Path, tiny_model: Path, run_processes: FindProcesses
) -> None:
    """In the asynchronous modes a batch is drawn ahead: the checkpoint has it, and no row is lost or doubled."""
    questions = write_sets(tmp_path)

    def kill(step: int) -> None:
        for process in run_processes() if step == KILLED else []:
            process.kill()

    with pytest.raises(TrainerError):
        run(tmp_path, tiny_model, mode, kill)
    assert gone(run_processes, 10) == []
    before = {step: rollouts(tmp_path, step) for step in range(1, KILLED + 1)}
    saved = state(tmp_path, SAVED)
    request = StopRequest()
    request.begin(tmp_path)
    logged = run(tmp_path, tiny_model, mode, lambda step: request.ask(), request)
    assert KILLED <= max(logged) < LAST
    logged |= run(tmp_path, tiny_model, mode)
    assert list(logged) == list(range(SAVED + 1, LAST + 1))
    after = {step: rollouts(tmp_path, step) for step in logged}

    order = RowOrder(rows(saved), DataSettings.model_validate(DATA))
    ahead = Counter(order.next() for _ in range(PROMPTS if mode != "sync" else 0))
    follow(order, {step: before[step] for step in range(1, SAVED + 1)}, questions, ahead)
    assert order.state() == saved
    if mode == "sync":
        assert drawn(before[KILLED], questions).keys() == drawn(after[KILLED], questions).keys()
    follow(order, after, questions, ahead)
    assert order.state()["table"] == state(tmp_path, LAST)["table"]

    for metrics in logged.values():
        assert math.isclose(sum(metrics.get(f"data/share/{name}", 0) for name in SETS), 1)


def write_sets(folder: Path) -> list[str]:
    """The questions, by the number of their row."""
    problems = iter(arithmetic.generate(5, sum(SETS.values())))
    questions: list[str] = []
    for name, count in SETS.items():
        its = [arithmetic.to_row(next(problems), "train", i) | {"data_source": name} for i in range(count)]
        write_parquet(its, folder / f"{name[-1]}.parquet")
        questions += [row["extra_info"]["question"] for row in its]
    return questions


def run(
    folder: Path, model: Path, mode: str, on_step: Any = None, stopping: StopRequest | None = None
) -> dict[int, dict[str, Any]]:
    files = ",".join(f"{folder}/{name[-1]}.parquet" for name in SETS)
    return train(
        folder,
        model,
        f"mode={mode}",
        on_step=on_step,
        stopping=stopping,
        data__train_files=f"[{files}]",
        trainer__save_freq=SAVED,
        trainer__resume_mode="auto",
        trainer__total_training_steps=LAST,
        **{f"+agent_rl__data__{key}": hydra(value) for key, value in DATA.items()},
    )


def hydra(value: Any) -> str:
    """A value as an override."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra(item)}" for key, item in value.items()) + "}"
    return f"'{value}'" if isinstance(value, str) else str(value)


def state(folder: Path, step: int) -> dict[str, Any]:
    """The order's state in a checkpoint."""
    import torch

    loader = torch.load(folder / f"checkpoints/global_step_{step}/data.pt", weights_only=False)
    found: dict[str, Any] = loader["_sampler_iter_state"]["sampler_iter_state"]
    return found


def rows(saved: dict[str, Any]) -> RowFacts:
    names = [name for name, count in SETS.items() for _ in range(count)]
    return RowFacts(
        names, [None] * len(names), [(path, []) for path in saved["table"]["files"]], saved["table"]["digest"]
    )


def drawn(samples: list[dict[str, Any]], questions: list[str]) -> dict[int, list[float]]:
    """The success rates of each row's groups in a step, from what verl has logged of it."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        groups[sample["uid"].split("_")[0]].append(sample)
    found: dict[int, list[float]] = defaultdict(list)
    for its in groups.values():
        (row,) = (number for number, each in enumerate(questions) if each in its[0]["input"])
        found[row].append(math.fsum(sorted(sample["score"] for sample in its)) / len(its))
    return found


def follow(order: RowOrder, steps: dict[int, list[dict[str, Any]]], questions: list[str], ahead: Counter[int]) -> None:
    """Draw what the order says, compare it with what was trained, and report the logged rewards.

    `ahead` has the rows that are drawn and not trained; their number stays.
    """
    for step, samples in steps.items():
        count = ahead.total()
        ahead.update(order.next() for _ in range(PROMPTS))
        found = drawn(samples, questions)
        ahead.subtract([row for row, rates in found.items() for _ in rates])
        assert min(ahead.values()) >= 0, step
        assert ahead.total() == count, step
        order.report(step, [(row, rate) for row, rates in found.items() for rate in rates])
