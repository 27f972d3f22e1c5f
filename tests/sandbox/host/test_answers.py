"""Comparing what a program gave with what was expected; much of it is hostile."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.sandbox.host.answers import longest_text, read_result, same_output, same_value
from agent_rl.sandbox.jail.call import plain


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1", 1, True),
        ("1.0", 1, True),
        ("1", 1.0, True),
        ("true", 1, False),
        ("1", True, False),
        ("0", False, False),
        ("null", False, False),
        ('"1"', 1, False),
        ("[1, [2, 3]]", (1, (2, 3)), True),
        ("[1, 2]", [1, 2, 3], False),
        ("[[1]]", [1], False),
        ('{"1": 2}', {1: 2}, True),
        ('{"1": 2, "2": 3}', {1: 2}, False),
        ("NaN", float("nan"), False),
        ("NaN", 1.0, False),
        ("Infinity", float("inf"), True),
        ("1e999", 1.0, False),
        ("100000000000000000000000000000000000001", 1e38, False),
        ("0.30000000000000004", 0.3, False),
    ],
)
def test_values_are_compared_by_kind_and_exactly(got, expected, same):
    assert same_value(read_result(got), plain(expected)) is same


def test_a_tolerance_is_for_floats_only():
    assert same_value([0.30000000000000004], [0.3], 1e-9)
    assert same_value(1000.0001, 1000, 1e-6)
    assert not same_value(1001, 1000, 0.5)
    assert not same_value(float("nan"), 1.0, 10.0)
    assert not same_value(10**400, 1.0, 10.0)
    assert not same_value(True, 1.0, 10.0)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\ufffd", "1 2", "9" * 10_000])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - each kind of error has its own text
        read_result(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


@given(JSON)
def test_a_value_equals_itself_after_the_way_through_json(value):
    assert same_value(read_result(json.dumps(value)), plain(value))
    assert not same_value(read_result(json.dumps([value])), plain(value))


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "same"),
    [
        ("1000000000", "1000000007", 1e-6, False),
        ("6172839450617284", "6172839450617283", 1e-6, False),
        ("1000000000.0", "1000000007", 1e-6, False),
        ("1e9", "1000000007", 1e-6, False),
        ("12345678901234568.0", "12345678901234567", 1e-6, False),
        ("2.0000001", "2", 1e-6, True),
        ("1e9", "1000000000", 1e-6, True),
        ("1000000000", "1000000007.0", 1e-6, True),
        ("a \nb\r\n\n", "a\nb", 0, True),
        (" a", "a", 0, False),
        ("a\n\nb", "a\nb", 0, False),
        ("", "\n", 0, True),
        ("1.00001 x", "1 x", 1e-3, True),
        ("1.00001 x", "1 x", 0, False),
        ("1.1 x", "1 x", 1e-3, False),
        ("1 y", "1 x", 1e-3, False),
        ("nan", "1", 1e9, False),
        ("inf", "1", 1e9, False),
        ("1_0", "10", 1e-3, False),
        ("1 1", "1", 1e-3, False),
    ],
)
def test_outputs_are_compared_without_white_space_at_the_end(got, expected, tolerance, same):
    assert same_output(got, expected, tolerance) is same


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ("1", True), ("true", 1), ("0", False), ("null", False), ("[]", None), ('"1"', 1), ("1", "1"), ("1.5", 1),
        ("[1]", [1, 2]), ("[1, 2, 3]", [1, 2]), ("{}", []), ("[]", {}), ('{"1": 2}', {"1": 2, "3": 4}), ("NaN", 0.0),
        ('{"1": 2, "x": 0}', {"1": 2}), ("[[]]", []), ('""', None), ("1e999", 10**400), ("-1e999", 1e308),
    ],
)  # fmt: skip
def test_values_that_are_nearly_equal(got, expected):
    assert not same_value(read_result(got), expected)
    assert not same_value(read_result(got), expected, 1e-6)


@pytest.mark.parametrize(
    "word", ["1" * 100_000 + "x", "1" * 100_000 + ".", "." * 100_000, "1e" * 50_000, "+" * 100_000]
)
def test_comparing_takes_no_time_that_the_program_chooses(word):
    """Comparing is done in the trainer's event loop."""
    started = time.monotonic()
    assert not same_output(word, "5", 1e-6)
    assert time.monotonic() - started < 5


def test_the_longest_text_of_a_number_is_long_enough():
    for expected in (0, 0.1, [0.1] * 1000, [1] * 1000, "é" * 1000, {"a": [1.0] * 100}):
        assert len(json.dumps(expected, indent=8)) < longest_text(expected)
    assert longest_text(10**5000) > 0
