r"""Solutions in the forms in which they are published, as turns of code_act_agent."""

import random

import pytest

from agent_rl.data.worlds.written_solutions import WORLD

RECORDED = """\
First the sum.
<code>
```python
x = 2 + 3
print(x)
```
</code>
<interpreter>
5
</interpreter>
Now its square.
```python
x ** 2
```
It is 25.
<answer>
\\boxed{25}
</answer>"""


def turns(solution):
    row = {"extra_info": {"solution": solution}}
    episode = WORLD.habits["oracle"](row, random.Random(0))
    found = [next(episode)]
    while True:
        try:
            found.append(episode.send("```output\n7\n```"))
        except StopIteration:
            assert WORLD.works(row) == (len(found) > 1)
            return found


def test_a_recorded_program_ends_a_turn_and_its_recorded_output_is_left_out():
    assert turns(RECORDED) == [
        "First the sum.\n```python\nx = 2 + 3\nprint(x)\n```",
        "Now its square.\n```python\nx ** 2\n```",
        "It is 25.\n\\boxed{25}",
    ]


@pytest.mark.parametrize(
    ("equation", "program"),
    [
        (r"12 \cdot 9 = 108", "12 * 9"),
        (r"\left(2^3 + 1,000\right)(2) = 2,016", "(2**3 + 1000) * (2)"),
        (r"x = 36 \div 6 = 6", "36 / 6"),
        (r"17 \times 3 = 51 = 3 + 48", "17 * 3"),
    ],
)
def test_the_longest_equation_of_numbers_becomes_a_program(equation, program):
    solution = rf"They cost $1 + 1 = 2$ each. So ${equation}$ in all. That is $\boxed{{9}}$."
    first, last = turns(solution)
    assert first == f"They cost $1 + 1 = 2$ each.\n```python\n{program}\n```"
    assert last == rf"So ${equation}$ in all. That is $\boxed{{9}}$."


@pytest.mark.parametrize(
    "solution",
    [
        r"It is $4 + 1 = 0$ modulo 5, so $\boxed{0}$.",
        r"By symmetry $x = 5$. $\boxed{5}$",
        r"It is $\boxed{5}$. Check: $2 + 3 = 5$.",
        r"We have $3x + 4 + 1 = 5$, so $\boxed{0}$.",
    ],
)
def test_what_has_nothing_to_run_is_one_turn(solution):
    assert turns(solution) == [solution]
