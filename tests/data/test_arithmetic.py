"""Generated arithmetic: right by Python's own arithmetic, seeded, disjoint, and as easy to read as promised."""

import re

from agent_rl.data import arithmetic, check_rows
from agent_rl.data.arithmetic import STORIES, Problem, generate, train_test

PROBLEMS = generate(7, 2000)
FIRST = Problem(
    question="Cleo has 7890 eggs, gets 623 and then 902 more and sells 8808. How many eggs does Cleo have now?",
    expression="7890+623+902-8808",
    answer="607",
    steps=(("7890+623", "8513"), ("8513+902", "9415"), ("9415-8808", "607")),
)


def numbers(text):
    return re.findall(r"\d+", text)


def python_value(expression):
    assert re.fullmatch(r"[\d*+-]+", expression)
    return str(eval(expression))  # noqa: S307  (digits and operators only, by the line above)


def test_answers_and_steps_agree_with_python():
    for problem in PROBLEMS:
        assert numbers(problem.question) == numbers(problem.expression)
        assert len(problem.steps) == len(re.findall(r"[-+*]", problem.expression))
        assert problem.answer == python_value(problem.expression) == problem.steps[-1][1]
        assert all(python_value(expression) == value and int(value) >= 0 for expression, value in problem.steps)


def test_sizes_are_as_documented():
    for problem in PROBLEMS:
        operators = re.findall(r"[-+*]", problem.expression)
        assert 2 <= len(operators) <= 3
        for before, number in zip([None, *operators], numbers(problem.expression), strict=True):
            assert len(number) == 2 if before == "*" else len(number) in (3, 4)
    assert len({re.sub(r"\d+", "N", problem.expression) for problem in PROBLEMS}) == len(STORIES)
    lengths = sorted(len(problem.answer) for problem in PROBLEMS)
    assert lengths[-1] <= 7
    assert lengths[len(lengths) // 10] >= 4


def test_the_seed_decides_and_a_smaller_count_is_a_prefix():
    assert generate(7, 2000) == PROBLEMS
    assert generate(7, 10) == PROBLEMS[:10]
    assert generate(8, 10) != PROBLEMS[:10]
    assert generate(7, 0) == []


def test_the_first_problem_of_a_seed_stays_the_same():
    """A change here changes every published number: say so in the changelog."""
    assert generate(0, 1) == [FIRST]


def test_nothing_comes_twice_and_excluded_texts_do_not_come():
    assert len({problem.expression for problem in PROBLEMS}) == len({each.question for each in PROBLEMS}) == 2000
    exclude = frozenset({PROBLEMS[0].question, PROBLEMS[2].expression})
    assert generate(7, 3, exclude=exclude) == [PROBLEMS[1], PROBLEMS[3], PROBLEMS[4]]


def test_train_and_test_are_disjoint_and_test_does_not_depend_on_the_size_of_train():
    train, test = train_test(3, 3000, 500)
    assert (len(train), len(test)) == (3000, 500)
    assert not {problem.question for problem in train} & {problem.question for problem in test}
    assert not {problem.expression for problem in train} & {problem.expression for problem in test}
    assert train_test(3, 10, 500) == (train[:10], test)
    assert train_test(4, 10, 10) != (train[:10], test[:10])
    again = train_test(3, 20, 10, exclude={train[0].question, test[0].expression})
    assert train[0] not in again[0]
    assert test[0] not in again[1]


def test_rows_carry_the_worked_answer_in_gsm8ks_notation():
    rows = [arithmetic.to_row(problem, "train", i) for i, problem in enumerate(PROBLEMS[:50])]
    check_rows(rows)
    for row, problem in zip(rows, PROBLEMS[:50], strict=True):
        annotations = re.findall(r"<<(.+?)=(.+?)>>", row["extra_info"]["answer"])
        assert tuple(annotations) == problem.steps
        assert row["extra_info"]["answer"].endswith(f"#### {problem.answer}")
        assert row["extra_info"]["expression"] == problem.expression
        assert row["reward_model"]["ground_truth"] == problem.answer
