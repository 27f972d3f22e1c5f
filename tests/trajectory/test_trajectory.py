import json
import pickle
from datetime import date

import numpy as np
import pytest
from PIL import Image

from agent_rl.trajectory import (
    SCHEMA_VERSION,
    Message,
    Score,
    StopReason,
    ToolCall,
    ToolResult,
    ToolStatus,
    Trajectory,
    Turn,
    row_data,
)


def _full():
    call = ToolCall("python", {"code": "6*7", "deep": [1, {"a": None}]}, id="1")
    good = ToolResult("1", "python", "42", seconds=0.5, reward=0.1, metrics={"lines": 1})
    bad = ToolResult("2", "nope", "no such tool", status=ToolStatus.UNKNOWN_TOOL)
    return Trajectory(
        prompt=[Message("system", "s"), Message("user", "6*7? \u00e9\u4e2d\U0001f600\n\u2028")],
        stop_reason=StopReason.ANSWERED,
        turns=[
            Turn(
                "t1", 3, [call, ToolCall("nope")], [good, bad], observation="42", generation_seconds=1, tool_seconds=0.5
            ),
            Turn("t2", 2, malformed="no action", generation_seconds=0.25),
            Turn("42", 1),
        ],
        id="u_0",
        agent="react_agent",
        data_source="gsm8k",
        ground_truth="42",
        answer="42",
        score=Score(1.0, {"correctness": 1.0}),
        prompt_tokens=5,
        response_tokens=9,
        seconds=2.0,
        info={"index": 3, "split": "train"},
        row={"data_source": "gsm8k", "extra_info": {"level": 2}, "difficulty": [0.5]},
    )


def test_a_trajectory_counts_calls_errors_and_seconds():
    trajectory = _full()
    assert (trajectory.tool_calls, trajectory.tool_errors, trajectory.malformed_turns) == (2, 1, 1)
    assert [result.text for result in trajectory.results] == ["42", "no such tool"]
    assert (trajectory.generation_seconds, trajectory.tool_seconds) == (1.25, 0.5)


def test_repeated_calls_are_equal_to_an_earlier_one():
    calls = [ToolCall("a", {"x": 1, "y": 2}), ToolCall("b", {"x": 1, "y": 2}), ToolCall("a", {"x": "1", "y": 2})]
    again = ToolCall("a", {"y": 2, "x": 1}, id="other")
    turns = [Turn("1", calls=calls), Turn("2", calls=[again]), Turn("3", calls=[again, ToolCall("a")])]
    assert Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=turns).repeated_calls == 2


def test_results_of_an_older_version_are_read():
    data = _full().to_dict()
    for result in data["turns"][0]["results"]:
        del result["queue_seconds"], result["answer"]
    assert Trajectory.from_dict(data) == _full()


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
    trajectory = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, row=row)
    assert Trajectory.from_json(trajectory.to_json()).extra_info == row["extra_info"]


@pytest.mark.parametrize("trajectory", [_full(), Trajectory(prompt=[], stop_reason=StopReason.ERROR, error="boom")])
def test_json_goes_both_ways(trajectory):
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    assert Trajectory.from_json(trajectory.to_json().encode()) == trajectory
    assert "\n" not in trajectory.to_json()


def test_to_dict_is_plain_data_that_crosses_process_boundaries():
    data = _full().to_dict()
    assert json.loads(json.dumps(data)) == data
    assert _types(data) <= {dict, list, str, int, float, bool, type(None)}
    assert Trajectory.from_dict(pickle.loads(pickle.dumps(data))) == _full()
    assert pickle.loads(pickle.dumps(_full())) == _full()


@pytest.mark.parametrize("version", [None, 0, SCHEMA_VERSION + 1, "1"])
def test_another_version_is_refused(version):
    with pytest.raises(ValueError, match="cannot be read"):
        Trajectory.from_dict(_full().to_dict() | {"version": version})


@pytest.mark.parametrize(
    "change",
    [{"stop_reason": "bored"}, {"turns": [{"tokens": 1}]}, {"prompt": "hello"}, {"prompt": [{"role": "robot"}]}],
)
def test_what_is_no_trajectory_is_refused(change):
    with pytest.raises(ValueError, match="not a trajectory"):
        Trajectory.from_dict(_full().to_dict() | change)


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
