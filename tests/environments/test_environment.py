"""The base class: what it leaves to the author, and the whole way from the public name to a reward."""

import pytest

import agent_rl
from agent_rl.environments import Environment
from agent_rl.environments.kind import OWN
from tests.environments.sessions import lockers, run, session


def test_the_public_name_is_the_class() -> None:
    assert agent_rl.Environment is Environment


def test_no_method_of_the_base_class_is_a_tool() -> None:
    names = {
        "rows",
        "reset",
        "step",
        "get_reward",
        "solve",
        "state_key",
        "say",
        "reward_turn",
        "done",
        "answer",
        "data",
    }
    assert names <= OWN


def test_only_reset_may_be_left_out() -> None:
    bare = Environment()
    assert bare.reset(number=1) is None
    for call in (bare.get_reward, bare.solve, bare.state_key, lambda: bare.step("x"), lambda: bare.rows("train", 0)):
        with pytest.raises(NotImplementedError):
            call()


def test_what_the_expert_says_is_an_answer_to_the_world() -> None:
    class Echo(Environment):
        def step(self, message: str) -> str:
            return message.upper()

    echo = Echo()
    assert (echo.say("hello"), echo.answer) == ("HELLO", "hello")


def test_the_example_of_the_documentation() -> None:
    async def solve(world):
        found = await world.call("look_up", {"number": 182})
        await world.call("open", {"number": 182, "code": int(found.text.split()[-1].rstrip("."))})
        return await world.reward()

    kind = lockers()
    assert run(session(kind, {"number": 182, "code": 5515}), solve) == 1.0
    assert kind.system == "Open the locker that you are asked for: look up its code, then open it."
