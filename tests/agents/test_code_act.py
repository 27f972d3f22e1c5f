"""Code as the action: what is read from a turn, and episodes in a real sandbox."""

import pytest

from agent_rl.agents.code_act import NO_ANSWER, CodeActFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.python import Python
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory
from tests.agents.episodes import PROMPT, run

PYTHON = ToolSpec.from_class(Python)


def block(code, language="python"):
    return f"```{language}\n{code}\n```"


def play(*texts):
    return run(list(texts), PYTHON, form=CodeActFormat(), timeout_s=60)


def code(text, form=None):
    (call,) = (form or CodeActFormat()).parse(text, [PYTHON]).calls
    assert call.name == "python"
    return call.arguments["code"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (block("x = 1"), "x = 1\n"),
        ("I compute.\n" + block("x = 1") + "\nand go on", "x = 1\n"),
        (block("x = 1", "py"), "x = 1\n"),
        (block("x = 1", "Python"), "x = 1\n"),
        (block("x = 1", " python title=a"), "x = 1\n"),
        (block("a") + "\ntext\n" + block("b"), "a\n\nb\n"),
        (block('{"a": 1}', "json") + "\n" + block("b"), "b\n"),
        ("1. First\n\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ("```python\nx = 1", "x = 1"),
        ("```python\r\nx = 1\r\n```", "x = 1\n"),
        (block("s = '```'"), "s = '```'\n"),
        (block("x") + "\n\\boxed{1}", "x\n"),
    ],
)
def test_program_is_read(text, expected):
    assert code(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so \\boxed{42}.", "42"),
        ("\\boxed{1} no, \\boxed{ \\frac{1}{2} }", "\\frac{1}{2}"),
        ("\\boxed{1} and \\boxed{2", "1"),
        (block("", "python") + "\\boxed{4}", "4"),
        (block("42", "text") + "\\boxed{5}", "5"),
    ],
)
def test_boxed_answer_is_read(text, expected):
    step = CodeActFormat().parse(text, [PYTHON])
    assert (step.answer, step.calls) == (expected, [])


@pytest.mark.parametrize("text", ["", "42", "\\boxed{}", "\\boxed{4", block("x", "c")])
def test_turn_without_code_or_box_is_malformed(text):
    with pytest.raises(MalformedActionError, match="neither a block"):
        CodeActFormat().parse(text, [PYTHON])


def test_text_answers_where_it_may():
    form = CodeActFormat(answer="text")
    assert form.parse(" It is\n42. ", [PYTHON]).answer == "It is\n42."
    assert code(block("x"), form) == "x\n"
    with pytest.raises(MalformedActionError, match="empty"):
        form.parse(" \n", [PYTHON])


def test_instructions_say_how_to_answer():
    assert "\\boxed{answer}" in CodeActFormat().prompt(PROMPT, [PYTHON])[0]["content"]
    assert "boxed" not in CodeActFormat(answer="text").prompt(PROMPT, [PYTHON])[0]["content"]


def test_variables_live_as_long_as_the_episode():
    texts = (
        "I begin.\n" + block("x = 6\nx") + "\n```output\n7\n```\n\\boxed{invented}",
        block("print(x * 7)"),
        "It is \\boxed{42}.",
    )
    trajectory = play(*texts)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    assert [turn.observation for turn in trajectory.turns] == ["```output\n6\n```", "```output\n42\n```", None]
    assert trajectory.turns[0].text == "I begin.\n" + block("x = 6\nx") + "\n"
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    (first, *_) = play(block("x")).turns
    assert "name 'x' is not defined" in first.observation


def test_thoughts_are_neither_code_nor_answer():
    trajectory = play(
        f"<think>\n{block('draft')}\n\\boxed{{0}}</think>\n{block('6 * 7')}", "<think>x</think> \\boxed{42}"
    )
    assert trajectory.turns[0].observation == "```output\n42\n```"
    assert trajectory.answer == "42"


def test_mistakes_in_code_are_observations():
    trajectory = play(block("1/0"), block("print('a'"), "hm", "\\boxed{1}")
    assert trajectory.turns[0].observation.startswith("```output\nError: ZeroDivisionError: division by zero")
    assert "SyntaxError" in trajectory.turns[1].observation
    assert trajectory.turns[2].observation == f"```output\nError: {NO_ANSWER}\n```"
    assert [result.status for result in trajectory.results] == [ToolStatus.ERROR, ToolStatus.ERROR]
    assert trajectory.malformed_turns == 1
