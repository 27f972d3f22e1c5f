"""Rows that are asked twice, word for word or nearly, among many that are not."""

import random

import pytest

from agent_rl.data.duplicates import Duplicates, Repeated


def text(seed: int, words: int = 60) -> list[str]:
    draw = random.Random(seed)
    return [f"word{draw.randrange(3_000)}" for _ in range(words)]


def found(*rows: tuple[int, int, str, str, str]) -> list[Repeated]:
    with Duplicates() as duplicates:
        for row in rows:
            duplicates.add(*row)
        return list(duplicates.found())


def test_each_repeated_row_is_found_once_and_no_other() -> None:
    many = 12_000  # more than one batch
    with Duplicates() as duplicates:
        for number in range(many):
            duplicates.add(0, number, " ".join(text(number)), "1")
        expected = {}
        for number in range(0, many, 400):
            near = text(number)
            near[7] = "changed"
            duplicates.add(1, number, " ".join(near), "1")
            duplicates.add(2, number, " ".join(text(number)), "2")
            expected[(1, number)] = expected[(2, number)] = (0, number)
        repeated = list(duplicates.found())
    assert {(each.file, each.row): each.first for each in repeated} == expected
    assert len(repeated) == len(expected)
    assert all(each.is_exact == (each.file == 2) and each.same_truth == (each.file == 1) for each in repeated)
    assert all(0.8 <= each.similarity < 1 for each in repeated if each.file == 1)


@pytest.mark.parametrize(
    ("asked", "is_exact"), [("How many  apples\nare left?", True), ("how many APPLES are left?", False)]
)
def test_white_space_does_not_count_and_case_does_a_little(asked: str, is_exact: bool) -> None:
    (one,) = found((0, 0, "How many apples are left?", "3", ""), (0, 1, asked, "3", ""))
    assert one == Repeated(0, 1, (0, 0), 1.0, is_exact, same_truth=True)


def test_the_same_words_with_other_tools_are_another_row() -> None:
    assert found((0, 0, "List them.", "3", '{"db": "shops"}'), (0, 1, "List them.", "4", '{"db": "schools"}')) == []


def test_short_texts_differ_by_any_word() -> None:
    assert found(*((0, number, f"{number} plus 1", "", "") for number in range(50))) == []


def test_surrogates_and_empty_texts_are_texts() -> None:
    assert [each.row for each in found((0, 0, "\ud800 a", "", ""), (0, 1, "", "", ""), (0, 2, "\ud800 a", "", ""))] == [
        2
    ]


def test_nearly_the_same_prompt_with_another_truth_is_another_task() -> None:
    """As questions about one database, which share its schema, and tasks made from one template."""
    schema = " ".join(text(1))
    rows = [(0, 0, f"{schema} per year?", "3", ""), (0, 1, f"{schema} per month?", "5", "")]
    assert found(*rows) == []
    (one,) = found(*rows, (0, 2, f"{schema} each month?", "5", ""))
    assert (one.row, one.first, one.is_exact) == (2, (0, 1), False)
