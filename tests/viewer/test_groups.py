"""Groups: the advantages that were trained with where the trace has them, else those that the rewards give."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_rl.trace.batches import TrainedBatch, append_batch
from agent_rl.viewer.index import TraceIndex
from agent_rl.viewer.query import Query
from agent_rl.viewer.rewards import COMPUTED, TRAINED, read_group


def test_without_batches_the_rewards_give_the_advantages(index: TraceIndex) -> None:
    group = read_group(index, index.find(Query({"step": "2", "text": "number 101"}))[0])
    assert [sample.advantage for sample in group.samples] == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
    assert (group.source, group.names) == (COMPUTED, ["correctness", "efficiency"])
    first = group.samples[0].record
    assert (group.apart(first, "correctness"), group.apart(first, "efficiency")) == pytest.approx((0.5, 0.0))
    assert group.apart(first, "no such") is None


def test_what_was_trained_with_is_shown(run: Path, index: TraceIndex) -> None:
    """One number, several for the tokens of a sequence, two sequences; and a sample that was not trained on."""
    names = ["uid2-1_0_0", "uid2-1_1_0", "uid2-1_2_0", "uid2-1_2_1", "uid1-1_3_0"]
    append_batch(run / "trace.jsonl", TrainedBatch(2, 0, names, [1.5, [-1.0, -2.0], 0.5, 1.0, 9.0]))
    group = read_group(index, index.find(Query({"step": "2", "text": "number 101"}))[0])
    found = {sample.record["id"]: sample.advantage for sample in group.samples}
    assert found == {"uid2-1_0": 1.5, "uid2-1_1": -1.5, "uid2-1_2": 0.75, "uid2-1_3": None}
    assert group.source == TRAINED


def test_one_sample_has_no_advantage(index: TraceIndex) -> None:
    group = read_group(index, index.find(Query({"text": "engine"}))[0])
    assert [sample.advantage for sample in group.samples] == [None]
