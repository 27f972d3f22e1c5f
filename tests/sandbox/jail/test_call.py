"""The value of a called function as text, and what counts as plain data."""

import marshal

import pytest

from agent_rl.sandbox.jail.call import NotComparable, marked_value


def called(value, mark="mark"):
    """What is written for a function that returns `value`."""
    return marked_value(marshal.dumps(("f", [1], {"y": 2}, mark)), {"f": lambda x, y: value}, {})


def test_a_value_follows_the_mark_in_the_terms_of_json():
    assert called((1, {2: [None, True, "é"]})) == b'mark[1, {"2": [null, true, "\\u00e9"]}]'


class Always(int):
    def __eq__(self, other):
        return True


@pytest.mark.parametrize("value", [{1}, b"x", object(), {(1, 2): 3}, [{1.5: 2}], (x for x in "a"), [Always(1)]])
def test_a_value_that_is_not_plain_is_not_written(value):
    with pytest.raises(NotComparable, match=r"cannot be compared"):
        called(value)


def test_a_value_in_itself_ends_the_call():
    value = []
    value.append(value)
    with pytest.raises(RecursionError):
        called(value)


def test_a_method_of_solution_goes_before_a_function():
    solution = type("Solution", (), {"f": lambda self: "method"})
    order = marshal.dumps(("f", [], {}, ""))
    assert marked_value(order, {"Solution": solution, "f": lambda: "function"}, {}) == b'"method"'
    with pytest.raises(NameError, match="the program defines no function 'f'"):
        marked_value(order, {}, {})
