"""Batches of any number of rows are filled up by as little as possible, and their weights are those without filling."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forks import python

ROOT = Path(__file__).parents[2]

TRAINER = """
import verl
from types import SimpleNamespace
from tests.verl_adapter.trainers import make

def trainer(prompts=16, mini=16, micro=None, critic=None, **parts):
    policy = "actor_rollout_ref"
    config = {"data.train_batch_size": prompts, f"{policy}.rollout.n": 4}
    for part, size in ((f"{policy}.actor", mini), ("critic", critic or mini)):
        config |= {f"{part}.ppo_mini_batch_size": size, f"{part}.use_dynamic_bsz": micro is None,
                   f"{part}.ppo_micro_batch_size_per_gpu": micro}
    for part in (f"{policy}.rollout", f"{policy}.ref"):
        config |= {f"{part}.log_prob_use_dynamic_bsz": micro is None,
                   f"{part}.log_prob_micro_batch_size_per_gpu": micro}
    return make(config=config, use_critic=critic is not None, global_steps=1, **parts)

def multiple(gpus, **sizes):
    return trainer(**sizes)._get_required_batch_multiple(gpus)

def told(rows, filled, **sizes):
    given = {}
    class Stop(Exception): pass
    def update(batch):
        given.update(batch.extra_info)
        raise Stop
    tags = [{"is_padding": i >= rows} for i in range(rows + filled)]
    group = SimpleNamespace(update_actor=update)
    made = trainer(actor_rollout_wg=group, **sizes)
    try: made._update_actor(SimpleNamespace(keys=range(rows + filled), tags=tags, extra_info={}), {})
    except Stop: pass
    assert made.actor_rollout_wg is group
    return [given.get(key) for key in ("mini_batch_size", "num_mini_batch", "global_batch_size")]
"""


def test_rows_are_filled_up_to_what_the_gpus_and_mini_batches_divide() -> None:
    code = """
found = [multiple(8), multiple(8, mini=8), multiple(8, mini=5), multiple(8, mini=8, critic=6),
         multiple(2, micro=8), multiple(2, mini=8, micro=8)]
print(found)
"""
    assert python(TRAINER + code) == "[8, 16, 32, 48, 16, 32]"
    assert python(TRAINER + code, plugins="none").startswith("[64, 32,")  # verl: until whole mini-batches are full


def test_workers_are_told_the_number_of_mini_batches_where_rows_vary_none_of_which_is_filling_alone() -> None:
    code = "print(told(64, 0), told(65, 7), told(70, 2, mini=8), told(60, 4), told(2, 6, mini=8), told(5, 3, mini=8))"
    varied = "[None, 1, 65.0] [None, 2, 35.0] [None, 1, 60.0] [None, 1, 2.0] [None, 2, 2.5]"
    assert python(TRAINER + code) == f"[64, None, 64] {varied}"


LENGTHS = [(3, 9), (5, 2), (4, 17), (7, 6), (2, 30)]
"""Tokens of prompt and response of each row."""
AGGREGATES = ("token-mean", "seq-mean-token-mean")


def updated(folder: Path, ranks: int, cases: list[dict[str, Any]]) -> list[list[float]]:
    """The weights after one update of a policy by so many data-parallel ranks, of each case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    out = folder / f"{ranks}.json"
    given = json.dumps({"model": str(folder / "model"), "lengths": LENGTHS, "out": str(out), "cases": cases})
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("rank_update.py")), given],
            cwd=ROOT,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for each in running:
        _, errors = each.communicate(timeout=200)
        assert each.returncode == 0, errors[-3000:]
    found: list[list[float]] = json.loads(out.read_text())
    return found


def farthest(one: list[float], other: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(one, other, strict=True))


@pytest.mark.recipes
def test_two_ranks_with_filling_reach_the_weights_of_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rows: one rank updates with them alone, two with a sixth that only fills up. verl's way is another one."""
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    tokenizer = make_tokenizer(CORPUS, tmp_path / "model", 300)
    make_model(tmp_path / "model", tokenizer, hidden=16, layers=1, heads=2, max_positions=256)
    unfilled = [{"aggregate": each, "filled": 5, "mini_batches": 1} for each in AGGREGATES]
    *alone, start = updated(tmp_path, 1, [*unfilled, {**unfilled[0], "lr": 0.0}])
    ours = [{"aggregate": each, "filled": 6, "mini_batches": 1} for each in AGGREGATES]
    verls = {"aggregate": AGGREGATES[0], "filled": 8, "mini_batch_size": 4}  # of 4 prompts with one sample each
    *filled, other = updated(tmp_path, 2, [*ours, verls])
    for one, two in zip(alone, filled, strict=True):
        assert farthest(one, two) < 2e-5
        assert farthest(one, start) > 5e-4  # the learning rate is 1e-3
    assert farthest(alone[0], other) > 1e-4
