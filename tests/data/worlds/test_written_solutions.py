r"""Solutions in the forms in which they are published, as turns of code_act_agent."""

import random

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


def test_a_solution_without_a_program_is_one_turn():
    solution = r"We have $3x + 4 + 1 = 5$, so $\boxed{0}$."
    assert turns(solution) == [solution]
