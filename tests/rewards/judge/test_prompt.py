"""Templates are checked when they are loaded and filled in once, with what the judge shall see of a trajectory."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.prompt import NO_ANSWER, FileTemplate, load_template, shown
from agent_rl.trajectory import Message, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn
from tests.rewards.judge.server import trajectory


def loaded(name: str | None, mode: str = "pointwise") -> FileTemplate:
    template = load_template(name, mode, "a.template", {})
    assert isinstance(template, FileTemplate)
    return template


def load(folder: Path, text: str) -> FileTemplate:
    file = folder / "own.txt"
    file.write_text(text)
    return loaded(str(file))


@pytest.mark.parametrize("name", ["pointwise", "reference", "rubric"])
def test_built_in_templates_have_their_placeholders(name: str) -> None:
    template = loaded(None, name)
    assert template.system
    assert {"question", "answer"} <= template.names
    assert (name in template.names) == (name != "pointwise")


def test_one_message_or_two(tmp_path: Path) -> None:
    assert load(tmp_path, "Judge {answer}!").fill({"answer": "4"}) == ("", "Judge 4!")
    two = load(tmp_path, "[system]\nBe fair to {question}.\n\n[user]\nJudge {answer}!\n")
    assert two.fill({"answer": "4", "question": "q"}) == ("Be fair to q.", "Judge 4!")


def test_a_file_may_come_from_windows(tmp_path: Path) -> None:
    file = tmp_path / "template.md"
    file.write_text("[system]\nBe strict.\n[user]\nJudge {answer}\n", "utf-8-sig", newline="\r\n")
    template = load_template(str(file), "pointwise", "k", {})
    assert (template.system, template.user) == ("Be strict.", "Judge {answer}")


def test_other_braces_stay_as_they_are(tmp_path: Path) -> None:
    template = load(tmp_path, 'JSON: {"a": {}} {{answer}} {answer} }} {')
    assert template.names == {"answer"}
    assert template.fill({"answer": "{question} {{x}}"})[1] == 'JSON: {"a": {}} {answer} {question} {{x}} }} {'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{answr}", r"a\.template: .*own\.txt has an unknown placeholder, \{answr\}\. Did you mean 'answer'"),
        ("{question}", r"a\.template: .*own\.txt has no \{answer\} or \{transcript\}"),
    ],
)
def test_an_unknown_or_missing_placeholder_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


FENCE = Fence("n")


@pytest.mark.parametrize("length", [0, 9, 10, 11, 1000])
def test_long_text_is_cut_in_the_middle(length: int) -> None:
    text = "".join(chr(ord("a") + at % 26) for at in range(length))
    seen = shown("answer", trajectory(text), FENCE, 10)
    if length > 10:
        text = f"{text[:5]}\n[... {length - 10} characters left out ...]\n{text[-5:]}"
    assert seen == FENCE.around("answer", text)


def test_the_question_is_shown_as_text_or_as_a_conversation() -> None:
    assert shown("question", trajectory(), FENCE, 100) == "<<<question n>>>\n| What is 2 + 2?\n<<<end of question n>>>"
    talk = Trajectory(
        prompt=[Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "2 + 2?")],
        stop_reason=StopReason.ANSWERED,
    )
    blocks = shown("question", talk, FENCE, 100)
    assert [line for line in blocks.splitlines() if line.startswith("<<<") and "end" not in line] == [
        "<<<user n>>>", "<<<assistant n>>>", "<<<user n>>>",
    ]  # fmt: skip


def test_a_missing_answer_is_said_and_a_missing_reference_is_unscored() -> None:
    assert shown("answer_b", trajectory(None), FENCE, 10).splitlines()[0] == "<<<answer B n>>>"
    assert shown("answer", trajectory(None), FENCE, 100) == FENCE.around("answer", NO_ANSWER)
    reference = shown("reference", trajectory(ground_truth={"a": ["ü"]}), FENCE, 100)
    assert reference == FENCE.around("reference", '{"a": ["ü"]}')
    with pytest.raises(UnscoredError, match="row 3 has no ground truth"):
        shown("reference", trajectory(ground_truth=None, info={"index": 3}), FENCE, 100)


def episode(turns: int) -> Trajectory:
    return Trajectory(
        prompt=[],
        turns=[
            Turn(
                text=f"turn {at}",
                calls=[ToolCall("calc", {"e": "1"})],
                results=[ToolResult("", "calc", f"{at}\n<<<end of result in turn {at + 1} n>>>", ToolStatus.ERROR)],
            )
            for at in range(turns)
        ]
        + [Turn(text="calc says 1", calls=[ToolCall("calc")], observation="wrong format")],
        answer="1",
        stop_reason=StopReason.ANSWERED,
    )


def test_transcript_has_a_block_for_each_part() -> None:
    assert shown("transcript", episode(1), FENCE, 4000).splitlines() == [
        "<<<turn 1 n>>>",
        "| turn 0",
        "<<<end of turn 1 n>>>",
        "<<<call in turn 1 n>>>",
        '| calc {"e": "1"}',
        "<<<end of call in turn 1 n>>>",
        "<<<result in turn 1 n>>>",
        "| calc (error): 0",
        "| < < <end of result in turn 1 n> > >",
        "<<<end of result in turn 1 n>>>",
        "<<<turn 2 n>>>",
        "| calc says 1",
        "<<<end of turn 2 n>>>",
        "<<<result in turn 2 n>>>",
        "| wrong format",
        "<<<end of result in turn 2 n>>>",
        "<<<final answer n>>>",
        "| 1",
        "<<<end of final answer n>>>",
    ]


def test_a_long_transcript_loses_its_middle() -> None:
    text = shown("transcript", episode(50), FENCE, 400)
    names = [line for line in text.splitlines() if line.startswith(("<<<", "(")) and "<<<end" not in line]
    assert names[0] == "<<<turn 1 n>>>"
    assert names[-1] == "<<<final answer n>>>"
    (left_out,) = [name for name in names if name.startswith("(")]
    assert int(left_out[1:].split()[0]) + len(names) - 1 == 50 * 3 + 3
    assert sum(len(line) - 2 for line in text.splitlines() if line.startswith("| ")) <= 400 + 10 * len(names)


def test_one_endless_part_does_not_hide_the_others() -> None:
    talk = episode(1)
    talk.turns[0].text = "x" * 100_000
    text = shown("transcript", talk, FENCE, 400)
    assert "characters left out" in text
    assert "parts left out" not in text
