"""The calculator agent: the shape of its questions, the value of their words, its calls and its reward."""

import re
from collections import Counter

import pytest

from agent_rl.environments import load_environment
from recipes.calculator_agent import calculator_agent as recipe

KIND = load_environment("calculator_agent", f"{recipe.__file__}:CalculatorAgent")
ADD = "<calculator>\noperation: add\noperands: [12, {operation: divide, operands: [9, 2, 3]}]\n</calculator>"


def _begun(expression=None):
    instance = KIND.cls()
    instance.reset(expression or {"operation": "add", "operands": [1, 1]})
    return instance


def _operands(node):
    return sum(map(_operands, node["operands"])) if isinstance(node, dict) else 1


def test_the_questions_have_the_published_shape_and_no_expression_is_in_both_splits():
    rows = {split: list(recipe.CalculatorAgent.rows(None, split, 0)) for split in ("train", "test")}
    for split, its in rows.items():
        trees = [row["expression"] for row in its]
        assert Counter(map(_operands, trees)) == recipe.OPERANDS[split]
        assert Counter(map(recipe.depth_of, trees)) == recipe.DEPTHS[split]
    values = [recipe.value_of(row["expression"]) for row in rows["test"]]
    assert (sum(map(float.is_integer, values)), sum(value < 0 for value in values)) == (56, 3)
    texts = [{str(row["expression"]) for row in its} for its in rows.values()]
    assert not texts[0] & texts[1]
    assert len(texts[0]) == 1500


SIGNS = {"plus": "+", "minus": "-", "times": "*", "divided by": "/"}
NOUNS = {"the sum of": "+", "the difference between": "-", "the product of": "*", "the quotient of": "/"}
TOKENS = re.compile("|".join([r"\d+", ",", "then", "and", "the result of", *SIGNS, *NOUNS]))


def _read(words):
    """Compute a question by the rules in the docstring of `_in_words`, independently of its code."""
    tokens = TOKENS.findall(words)

    def operand():
        token = tokens.pop(0)
        if token == "the result of":
            return f"({infix()})"
        if token not in NOUNS:
            return token
        first = operand()
        assert tokens.pop(0) == "and"
        return f"({first} {NOUNS[token]} {operand()})"

    def infix():
        text = operand()
        while tokens:
            token = tokens.pop(0)
            text = f"({text})" if token == "," else text if token == "then" else f"{text} {SIGNS[token]} {operand()}"
        return text

    return eval(infix())  # noqa: S307 - of digits, signs and brackets


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_words_of_every_question_have_the_value_of_its_expression(split):
    for row in recipe.CalculatorAgent.rows(None, split, 0):
        assert _read(row["prompt"]) == pytest.approx(recipe.value_of(row["expression"])), row["prompt"]


def test_a_call_is_computed_from_left_to_right():
    assert _begun().step(f"Let me see. {ADD}") == "<output>13.5</output>"


@pytest.mark.parametrize(
    "call",
    [
        "operation: power\noperands: [1, 2]",
        "operation: add\noperands: [1]",
        "operation: divide\noperands: [1, 0]",
        "operation: add\noperands: [1, two]",
        "operation: add\noperands: [1, true]",
        "operation: [add]\noperands: [1, 2]",
        "operation: add\noperands: [1, 1" + "0" * 400 + "]",
        "3 + 4",
        "[",
        "{a: &a [*a]}",
        "&a {operation: add, operands: [1, *a]}",
    ],
)
def test_two_bad_calls_in_a_row_end_the_episode(call):
    instance, bad = _begun(), f"<calculator>{call}</calculator>"
    assert "<error>" in instance.step(bad)
    assert instance.step(ADD) == "<output>13.5</output>"
    assert "<error>" in instance.step(bad)
    assert instance.step(bad) is None


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("Answer: 2", 1), ("Answer: 2.09", 1), ("It is 1, so Answer: 2.", 1), ("Answer: 2e0", 1), ("200%", 1),
     ("Answer: 2.2", 0), ("2 or 3", 0), ("Answer: two", 0), ("Answer: -2", 0), (None, 0), ("Answer: 1,000,002", 0)],
)  # fmt: skip
def test_the_last_number_counts(answer, reward):
    instance = _begun()
    instance.answer = answer
    assert instance.get_reward() == reward
