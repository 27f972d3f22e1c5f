import json

import atif
import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import ToolCall, ToolResult, Trajectory, Turn, trace
from agent_rl.trajectory.exports.atif import from_atif, to_atif
from agent_rl.trajectory.viewer.records import in_our_form
from tests.trajectory.exports.command import export
from tests.trajectory.exports.made import HOSTILE, trajectory


def without_ids():
    turn = Turn("", calls=[ToolCall("a"), ToolCall("a")], results=[ToolResult("", "a", "1"), ToolResult("", "a", "2")])
    return trajectory(turns=[turn, Turn("Unanswered.", observation="Again."), Turn("<think>open")])


@pytest.mark.parametrize(
    "given", [trajectory(), trajectory(reward=None, error="gone", turns=[]), without_ids()], ids=["whole", "no", "ids"]
)
def test_a_document_is_valid_and_comes_back_as_it_went(given):
    """Validated by the models of the format's own package."""
    document = json.loads(json.dumps(to_atif(given, "my/model")))
    atif.Trajectory.model_validate(document)
    assert document["schema_version"] == "ATIF-v1.7"
    back = Trajectory.from_dict(in_our_form(document))
    assert back == given
    assert back.ended == given.ended


def test_what_other_programs_read():
    document = to_atif(trajectory(), "my/model")
    atif.Trajectory.model_validate(document)
    system, user, first, _ = document["steps"]
    assert [each["step_id"] for each in document["steps"]] == [1, 2, 3, 4]
    assert (system["source"], user["source"], first["source"]) == ("system", "user", "agent")
    assert (first["reasoning_content"], first["message"]) == ("\nIt is hard.\n", "\nI look.")
    assert first["tool_calls"][0] == {"tool_call_id": "a", "function_name": "search", "arguments": {"q": HOSTILE}}
    results = first["observation"]["results"]
    assert [each["source_call_id"] for each in results] == ["a", "b", "c"]
    assert results[0]["content"] == HOSTILE
    assert document["agent"]["model_name"] == "my/model"
    assert document["final_metrics"]["extra"]["reward"] == 1.0
    assert first["metrics"] == {"completion_tokens": 12}


def test_a_document_of_another_program_has_calls_and_results():
    document = {
        "schema_version": "ATIF-v1.5", "session_id": "s1", "agent": {"name": "other", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "See "}, {"type": "image"}]},
            {"step_id": 2, "source": "agent", "message": "Look.", "reasoning_content": "Easy.",
             "tool_calls": [{"tool_call_id": "c", "function_name": "calc", "arguments": {"e": "6*7"}}],
             "observation": {"results": [{"source_call_id": "c", "content": "42"}]}},
            {"step_id": 3, "source": "user", "message": "Sure?"},
        ],
        "final_metrics": {"extra": {"reward": 0.5}},
    }  # fmt: skip
    found = from_atif(document)
    assert found["prompt"] == [{"role": "user", "content": "See <image>"}]
    (turn,) = found["turns"]
    assert (turn["text"], turn["observation"]) == ("<think>Easy.</think>Look.", "Sure?")
    assert turn["results"] == [{"call_id": "c", "name": "calc", "text": "42"}]
    assert (found["id"], found["score"]["total"]) == ("s1", 0.5)


def test_the_command_writes_one_document_for_each(tmp_path):
    for number in range(3):
        trace.append(tmp_path / "trace.jsonl", trajectory(number))
    assert export(tmp_path, "atif", "--limit", 2) == {"out": f"{tmp_path}/trace.atif", "trajectories": 2}
    files = sorted((tmp_path / "trace.atif").iterdir())
    assert [file.name for file in files] == ["000001_p0_0.atif.json", "000002_p1_0.atif.json"]
    with pytest.raises(ConfigError, match=r"--out: .*trace\.atif contains an earlier export\. Delete"):
        export(tmp_path, "atif", "--min-reward", 2)
    assert sorted((tmp_path / "trace.atif").iterdir()) == files
