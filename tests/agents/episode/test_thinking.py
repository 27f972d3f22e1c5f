"""Thoughts are not acted upon, whoever opened them; what a template drops is noticed."""

import pytest

from agent_rl.agents.episode.format import dropped_thoughts, spoken
from agent_rl.trajectory import StopReason
from tests.agents.episodes import ANSWER, act, run


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no thoughts\n", "no thoughts\n"),
        ("<think>a</think>b", "b"),
        ("<think>\na\n</think>\n\nb", "b"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("b<think>a", "b"),
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("a</think>b<think>c</think>d", "bd"),
        ("a</think>b<think>c", "b"),
        ("<think></think>", ""),
        ("<thinking>a", "<thinking>a"),
        ("[THINK]a[/THINK]b", "b"),
        ("a</seed:think>b<mm:think>c", "b"),
    ],
)
def test_thoughts_are_removed(text, rest):
    assert spoken(text) == rest


def test_action_or_answer_in_a_thought_does_not_count():
    trajectory = run([f"<think>{ANSWER}</think>{act()}", f"{act('1')}</think>{ANSWER}"])
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.answer == "42"
    assert [len(turn.calls) for turn in trajectory.turns] == [1, 0]
    assert "<think>" in trajectory.turns[0].text


def test_turn_that_only_thinks_is_malformed():
    trajectory = run([f"<think>{ANSWER}", ANSWER])
    assert trajectory.malformed_turns == 1


@pytest.mark.parametrize(
    ("rendered", "dropped"), [("user x assistant <think>why</think>b", False), ("user x assistant b", True)]
)
@pytest.mark.parametrize("content", ["<think>\nwhy\n</think>b", "why</think>b"])
def test_thought_that_the_template_drops_is_noticed(content, rendered, dropped):
    assert dropped_thoughts([{"role": "assistant", "content": content}], rendered) is dropped


def test_there_is_nothing_to_drop_without_thoughts():
    messages = [
        {"role": "user", "content": "a</think>b"},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "<think>\n\n</think>b"},
    ]
    assert not dropped_thoughts(messages, "")
