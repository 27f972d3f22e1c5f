import json
import pickle
from datetime import date

import numpy as np
import pytest
from PIL import Image

from agent_rl.trajectory import (
    SCHEMA_VERSION,
    Message,
    StopReason,
    ToolCall,
    Trajectory,
    Turn,
    row_data,
)
from tests.trajectory.exports.made import HOSTILE, trajectory


def test_a_trajectory_counts_calls_errors_and_seconds():
    whole = trajectory()
    assert (whole.tool_calls, whole.tool_errors, whole.malformed_turns) == (3, 1, 1)
    assert [result.text for result in whole.results] == [HOSTILE, "42", "Error: division by zero"]
    assert (whole.generation_seconds, whole.tool_seconds) == (2.0, 0.75)


def test_repeated_calls_are_equal_to_an_earlier_one():
    calls = [ToolCall("a", {"x": 1, "y": 2}), ToolCall("b", {"x": 1, "y": 2}), ToolCall("a", {"x": "1", "y": 2})]
    again = ToolCall("a", {"y": 2, "x": 1}, id="other")
    turns = [Turn("1", calls=calls), Turn("2", calls=[again]), Turn("3", calls=[again, ToolCall("a")])]
    assert Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=turns).repeated_calls == 2


def test_results_of_an_older_version_are_read():
    data = trajectory().to_dict()
    for result in data["turns"][0]["results"]:
        del result["queue_seconds"], result["answer"]
    read = Trajectory.from_dict(data)
    assert [(each.queue_seconds, each.answer) for each in read.results] == [(0.0, None)] * 3
    assert [each.text for each in read.results] == [each.text for each in trajectory().results]


def test_a_row_is_kept_as_json_data_without_prompt_and_media():
    columns = {
        "prompt": [{"role": "user", "content": "?"}],
        "raw_prompt": [{"role": "user", "content": "?"}],
        "images": [b"png"],
        "uid": "u",
        "data_source": np.str_("sums"),
        "reward_model": {"ground_truth": np.array(["1", "2"]), "test_cases": [{"in": 1}]},
        "extra_info": {"index": np.int64(3), "level": None, "picture": b"png", "seen": date(2025, 1, 2)},
        "difficulty": np.float64(0.5),
        "dummy_tensor": object(),
    }
    row = row_data(columns)
    assert row == {
        "data_source": "sums",
        "reward_model": {"ground_truth": ["1", "2"], "test_cases": [{"in": 1}]},
        "extra_info": {"index": 3, "level": None, "seen": "2025-01-02"},
        "difficulty": 0.5,
    }
    made = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, row=row)
    assert Trajectory.from_json(made.to_json()).extra_info == row["extra_info"]


@pytest.mark.parametrize(
    "given", [trajectory(), Trajectory(prompt=[], stop_reason=StopReason.ERROR, error="中😀\u2028")]
)
def test_json_goes_both_ways_and_a_dict_is_plain_data(given):
    data = given.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert _types(data) <= {dict, list, str, int, float, bool, type(None)}
    assert Trajectory.from_dict(data) == given
    assert Trajectory.from_json(given.to_json()) == given
    assert Trajectory.from_json(given.to_json().encode()) == given
    assert "\n" not in given.to_json()
    assert pickle.loads(pickle.dumps(given)) == given


@pytest.mark.parametrize("version", [None, 0, SCHEMA_VERSION + 1, "1"])
def test_another_version_is_refused(version):
    with pytest.raises(ValueError, match="cannot be read"):
        Trajectory.from_dict(trajectory().to_dict() | {"version": version})


@pytest.mark.parametrize(
    "change",
    [{"stop_reason": "bored"}, {"turns": [{"tokens": 1}]}, {"prompt": "hello"}, {"prompt": [{"role": "robot"}]}],
)
def test_what_is_no_trajectory_is_refused(change):
    with pytest.raises(ValueError, match="not a trajectory"):
        Trajectory.from_dict(trajectory().to_dict() | change)


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "null", "{}", b"\xff"])
def test_what_is_no_line_of_json_is_refused(line):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own message, or ours
        Trajectory.from_json(line)


def _types(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value)}.union(*(_types(item) for item in inner))


def test_chat_content_becomes_text() -> None:
    parts = [{"type": "text", "text": "see "}, {"type": "image"}, {"type": "text", "text": "here"}]
    assert Message.from_chat({"role": "user", "content": parts}) == Message("user", "see <image>here")
    image = Image.new("RGB", (1, 1))
    parts[1]["image"] = image
    assert Message.from_chat({"role": "user", "content": parts}).images == [image]
    parts[1]["image"] = "a.png"  # a path: what is shown comes from the policy
    assert Message.from_chat({"role": "user", "content": parts}).images == []
    assert Message.from_chat({"role": "assistant", "content": None}).content == ""
    assert Message.from_chat({"role": "user", "content": "text"}).content == "text"
