import pytest

from agent_rl.trajectory import trace
from agent_rl.trajectory.trace.batches import append_batch
from tests.trajectory.exports.made import trajectory


@pytest.fixture
def folder(tmp_path):
    """Six trajectories in two parts, one of validation, one unscored; a batch with two of them."""
    for number in range(4):
        trace.append(tmp_path / "trace.jsonl", trajectory(number, reward=number / 2), part_bytes=4000)
    trace.append(tmp_path / "trace.jsonl", trajectory(8, info={"split": "test", "step": 0}), part_bytes=4000)
    trace.append(tmp_path / "trace.jsonl", trajectory(9, reward=None, error="gone"), part_bytes=4000)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(5, 0, ["p0_0_0", "p1_0_0"], [-0.5, [1.0, 2.0]]))
    return tmp_path
