"""Turns that ask for nothing new are counted in a row."""

from agent_rl.agents.episode.repeats import Repeats
from agent_rl.trajectory import ToolCall


def in_a_row(*turns):
    repeats, counts = Repeats(), []
    for turn in turns:
        repeats.add([ToolCall(name, arguments) for name, arguments in turn])
        counts.append(repeats.in_a_row)
    return counts


A, B, C = ("t", {"x": 1, "y": 2}), ("t", {"x": 2}), ("u", {"x": 2})


def test_going_round_in_circles_is_counted():
    assert in_a_row([A], [B], [A], [B], [A]) == [0, 0, 1, 2, 3]


def test_something_new_starts_the_count_again():
    assert in_a_row([A], [A], [B], [A], [A, C]) == [0, 1, 0, 1, 0]


def test_order_of_arguments_does_not_matter_but_name_and_values_do():
    assert in_a_row([A], [("t", {"y": 2, "x": 1})]) == [0, 1]
    assert in_a_row([B], [C]) == [0, 0]
    assert in_a_row([("t", {"x": 1})], [("t", {"x": "1"})]) == [0, 0]


def test_equal_calls_within_the_first_turn_repeat_nothing():
    assert in_a_row([A, A]) == [0]
