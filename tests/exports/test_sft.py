"""Rejection sampling: which trajectories are taken."""

import io

import pyarrow.parquet as parquet
import pytest
from PIL import Image

from agent_rl import trace
from agent_rl.errors import ConfigError
from agent_rl.exports.sft import SftChoice
from agent_rl.trajectory import Message, StopReason, ToolResult, Turn
from tests.exports.command import export
from tests.exports.made import trajectory


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
        "no score": 1, "cut off": 1, "not of the split train": 2, "reward below the threshold": 1,
        "the same conversation again": 1,
    }  # fmt: skip
    assert ids(SftChoice(split="test"), made) == ["p4_0"]
    made[2].id = "later_0"  # another step
    assert ids(SftChoice(per_prompt=2), made)[:2] == ["p0_1", "p0_3"]
    assert ids(SftChoice(per_prompt=3), made)[:3] == ["p0_1", "later_0", "p0_3"]


def test_images_go_along_as_verl_reads_them(tmp_path):
    """`<image>` in the text, the files in their order in a column; what is not there is left out."""
    red, blue = Image.new("RGB", (3, 2), "red"), Image.new("RGB", (3, 2), "blue")
    part = {"type": "image"}
    sequence = {"prompt_ids": [1], "response_ids": [2], "mask": [1], "logprobs": None, "images": 2}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Is "}, part, {"type": "text", "text": " red?"}]},
        {"role": "assistant", "content": "I look."},
        {"role": "user", "content": [part, {"type": "text", "text": "Seen."}]},
        {"role": "assistant", "content": "Yes."},
    ]
    looked, answered = Turn("I look.", results=[ToolResult("", "see", "Seen.", images=[blue])]), Turn("Yes.")
    made = [
        (messages, [looked, answered]),
        ([{**messages[0], "content": "Is <image>?"}, *messages[1:]], [looked, answered]),
        (messages, [answered]),
        ([], [looked, answered]),
    ]
    trace.append(tmp_path / "trace.jsonl", trajectory(9, info={"split": "test"}))  # which the limit does not count
    for number, (said, turns) in enumerate(made):
        tokens = {"messages": said, "tools": [], "sequences": [sequence]}
        about = {"turns": turns, "info": {"step": 1, "split": "train", "tokens": tokens}}
        prompt = [Message("user", f"Is <image> {number}?", images=[red])]
        trace.append(tmp_path / "trace.jsonl", trajectory(number, prompt=prompt, **about))
    assert export(tmp_path, "sft", "--limit", 1)["trajectories"] == 1
    written = export(tmp_path, "sft")
    assert written["left_out"] == {
        "not of the split train": 1, "its images are not there": 2, "without tokens, or with videos or audios": 1,
    }  # fmt: skip
    (row,) = parquet.read_table(tmp_path / "trace.sft.parquet").to_pylist()
    assert [each["content"] for each in row["messages"]] == ["Is <image> red?", "I look.", "<image>Seen.", "Yes."]
    for stored, image in zip(row["images"], (red, blue), strict=True):
        with Image.open(io.BytesIO(stored["bytes"])) as found:
            assert found.tobytes() == image.tobytes()


def test_a_trace_without_tokens_has_no_conversations(tmp_path):
    trace.append(tmp_path / "trace.jsonl", trajectory())
    with pytest.raises(ConfigError, match="kept with the tokens"):
        export(tmp_path, "sft")
