"""The solver of SVAMP's equations, on published forms of them."""

import random

import pytest

from agent_rl.data.worlds.svamp import WORLD

PUBLISHED = [
    ("( 290.0 / 2.0 )", "I divide.", "290 / 2"),
    ("( ( 44.0 + 44.0 ) + 58.0 )", "I add.", "(44 + 44) + 58"),
    ("( 7.5 * ( 3.0 + 2.0 ) )", "I multiply.", "7.5 * (3 + 2)"),
]


@pytest.mark.parametrize(("equation", "thought", "expression"), PUBLISHED)
def test_the_solver_computes_the_equation_and_answers_what_it_sees(equation, thought, expression):
    story = "Ann has 290 bananas, and bananas in 2 groups and 93 oranges. How big is a group?"
    row = {"prompt": [{"content": story}], "extra_info": {"equation": equation}}
    episode = WORLD.habits["oracle"](row, random.Random(0))
    call = f'Thought: How big is a group? {thought}\nAction: calculator\nAction Input: {{"expression": "{expression}"}}'
    assert next(episode) == call
    assert episode.send("Observation: 145").endswith("\nFinal Answer: 145")


def test_a_row_gives_its_numbers_to_who_guesses():
    row = {"prompt": [{"content": "Ann has 2 apples."}], "extra_info": {"equation": "( 1.0 + 1.0 )"}}
    assert next(WORLD.habits["no_tool"](row, random.Random(0))).endswith("Final Answer: 2")
