"""Rejection sampling: which trajectories are taken."""

import json

import pyarrow.parquet as parquet
import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, Turn, trace
from agent_rl.trajectory.exports.sft import SftChoice
from tests.trajectory.exports.command import export
from tests.trajectory.exports.made import trajectory


def ids(choice, made):
    return [each.id for each in choice.of(made)]


def test_what_is_chosen():
    made = [
        *(trajectory(0, sample, reward, answer=str(sample)) for sample, reward in enumerate([0.0, 1.0, 0.5, 1.0])),
        trajectory(1, 0, 0.5), trajectory(1, 1, 0.5),
        trajectory(2, 0, None, error="gone"),
        trajectory(3, 0, 1.0, stop_reason=StopReason.MAX_TOKENS),
        trajectory(4, 0, 1.0, info={"split": "test"}),
        trajectory(5, 0, 1.0, info={}, row={}), trajectory(6, 0, 1.0, info={}, row={}),
    ]  # fmt: skip
    for number, each in enumerate(made[:4]):
        each.turns = [Turn(f"It is {number}.")]
    choice = SftChoice(0.5, trained=["p5_0"])
    assert ids(choice, made) == ["p0_1", "p0_2", "p0_3", "p1_0", "p5_0"]
    assert dict(choice.left_out) == {
        "no score": 1, "cut off": 1, "not in the split train": 2, "reward below the threshold": 1,
        "duplicate conversation": 1,
    }  # fmt: skip
    assert ids(SftChoice(split="test"), made) == ["p4_0"]
    made[2].id = "later_0"  # another step
    assert ids(SftChoice(per_prompt=2), made)[:2] == ["p0_1", "p0_3"]
    assert ids(SftChoice(per_prompt=3), made)[:3] == ["p0_1", "later_0", "p0_3"]


def test_rows_are_the_training_sequences_and_what_has_images_is_left_out(tmp_path):
    said = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "Red."}]
    sequence = {"prompt_ids": [1, 2], "response_ids": [3, 4], "mask": [1, 0], "logprobs": None, "images": 0}
    trace.append(tmp_path / "trace.jsonl", trajectory(9, info={"split": "test"}))  # which the limit does not count
    trace.append(tmp_path / "trace.jsonl", trajectory(8, info={"split": "train"}))
    for number, sequences in enumerate(([{**sequence, "images": 1}], [sequence, {**sequence, "mask": [1, 1]}])):
        tokens = {"messages": said, "tools": [], "sequences": sequences}
        trace.append(tmp_path / "trace.jsonl", trajectory(number, info={"split": "train", "tokens": tokens}))
    assert export(tmp_path, "sft", "--limit", 1)["trajectories"] == 1
    written = export(tmp_path, "sft")
    assert (written["trajectories"], written["left_out"]) == (
        1, {"not in the split train": 1, "with images, videos or audio": 1, "without tokens": 1},
    )  # fmt: skip
    first, second = parquet.read_table(tmp_path / "trace.sft.parquet").to_pylist()
    assert (first["prompt_ids"], first["response_ids"], first["mask"], second["mask"]) == (
        [1, 2],
        [3, 4],
        [1, 0],
        [1, 1],
    )
    assert (first["id"], json.loads(first["messages"]), first["tools"]) == ("p1_0", said, "[]")


def test_a_trace_without_tokens_is_an_error(tmp_path):
    trace.append(tmp_path / "trace.jsonl", trajectory())
    with pytest.raises(ConfigError, match=r"agent_rl\.trace\.tokens=true"):
        export(tmp_path, "sft")
