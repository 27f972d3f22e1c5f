"""Reward functions of every shape, called with verl's four arguments."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards import score_answer
from agent_rl.rewards.user_function import UserFunction, scorer_info
from agent_rl.settings.errors import Place
from agent_rl.trajectory import Message, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

GIVEN = ("source", "answer", "truth", {"index": 3})
PLACE = Place("reward.custom_reward_function.name")


VERLS = "data_source, solution_str, ground_truth, extra_info"
OTHERS = "source, response, label, info"
BATCH = "data_sources, solution_strs, ground_truths, extra_infos"


def shape(parameters: str, result: str = VERLS) -> Callable[..., Any]:
    """A function of these parameters that returns them in verl's order."""
    made: Callable[..., Any] = eval(f"lambda {parameters}: ({result})")  # noqa: S307
    made.__name__ = parameters
    return made


class Callable_:
    def __call__(self, data_source, solution_str, ground_truth, extra_info):  # type: ignore[no-untyped-def]
        return data_source, solution_str, ground_truth, extra_info


class AsyncCallable:
    async def __call__(self, data_source, solution_str, ground_truth, extra_info):  # type: ignore[no-untyped-def]
        return data_source, solution_str, ground_truth, extra_info


async def awaited(data_source, solution_str, ground_truth, extra_info):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return data_source, solution_str, ground_truth, extra_info


async def an_awaited_batch(data_sources, solution_strs, ground_truths, extra_infos):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return list(zip(data_sources, solution_strs, ground_truths, extra_infos, strict=True))


def with_method(solution_str, ground_truth, method, data_source="", extra_info=None):  # type: ignore[no-untyped-def]
    return data_source, solution_str, ground_truth, extra_info


verls = shape(f"{VERLS}=None")
anything = shape("**kwargs", ", ".join(f"kwargs[{name!r}]" for name in VERLS.split(", ")))


@pytest.mark.parametrize(
    "function",
    [
        verls,
        anything,
        shape("solution_str, ground_truth, extra_info", "'source', solution_str, ground_truth, extra_info"),
        shape("extra_info, ground_truth, solution_str, data_source"),
        shape("*, extra_info, data_source, ground_truth, solution_str"),
        shape("solution_str, ground_truth, method='strict', data_source='', extra_info=None"),
        shape(OTHERS, OTHERS),
        shape("response, label, info", "'source', response, label, info"),
        shape(f"{OTHERS}, /", OTHERS),
        shape("*three", "'source', *three"),
        shape(f"{BATCH}, **kwargs", f"[*zip({BATCH})]"),
        shape("extra_infos, ground_truths, solution_strs, data_sources", f"[*zip({BATCH})]"),
        shape("**kwargs", "awaited(**kwargs)"),
        Callable_(),
        functools.partial(with_method, method="strict"),
        awaited,
        an_awaited_batch,
        AsyncCallable(),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_every_shape_gets_every_value_in_its_place(function: Callable[..., Any]) -> None:
    assert asyncio.run(UserFunction(function, PLACE).answer(*GIVEN)) == GIVEN


def test_a_function_may_take_less() -> None:
    assert UserFunction(lambda solution_str: solution_str, PLACE)(*GIVEN) == "answer"
    assert UserFunction(lambda predict_str, ground_truth: (predict_str, ground_truth), PLACE)(*GIVEN) == GIVEN[1:3]
    assert UserFunction(lambda ground_truth, solution_str: (solution_str, ground_truth), PLACE)(*GIVEN) == GIVEN[1:3]


def test_reward_kwargs_and_what_verl_adds_are_given_to_those_who_take_them() -> None:
    def takes(solution_str, bonus, reward_router_address=None):  # type: ignore[no-untyped-def]
        return bonus, reward_router_address

    more = ("reward_router_address",)
    function = UserFunction(takes, PLACE, options={"bonus": 2}, more=more)
    assert function(*GIVEN, reward_router_address="host:1") == (2, "host:1")
    assert UserFunction(verls, PLACE, more=more)(*GIVEN, reward_router_address="host:1") == GIVEN
    by_position = UserFunction(lambda response, label, bonus: (response, label, bonus), PLACE, options={"bonus": 2})
    assert by_position(*GIVEN) == ("answer", "truth", 2)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("truth, solution_str", "there is no value for truth"),
        ("reward_inputs", "there is no value for reward_inputs"),
        ("data_source, ground_truth", "no parameter takes the answer"),
        ("solution_str, ground_truth, *, reward_router_address", "there is no value for reward_router_address"),
        ("solution_strs, weights", "there is no value for weights"),
    ],
)
def test_what_cannot_be_called_is_refused_with_its_signature(parameters: str, problem: str) -> None:
    function = shape(parameters, "None")
    function.__name__ = "mine"
    with pytest.raises(ConfigError) as caught:
        UserFunction(function, PLACE)
    shown = f"{PLACE.key}: mine({parameters}) cannot be called: {problem}. Name the parameters data_source, "
    assert str(caught.value).startswith(shown)


def test_reward_kwargs_that_the_function_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="it does not accept bonus, which reward_kwargs sets"):
        UserFunction(verls, PLACE, options={"bonus": 1})
    assert UserFunction(anything, PLACE, options={"bonus": 1})(*GIVEN) == GIVEN


@pytest.mark.parametrize("result", [1.0, [1.0, 2.0], "1", None, {"score": 1}])
def test_a_batch_of_one_has_one_result(result: Any) -> None:
    with pytest.raises(ConfigError, match="for a batch of one answer"):
        UserFunction(lambda solution_strs: result, PLACE)(*GIVEN)


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (0.5, 0.5),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.int64(1), 1.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        ({"score": 0.5, "style": 1}, {"score": 0.5, "style": 1}),
        ({"reward_score": np.float64(0.5), "style": 1}, {"score": 0.5, "style": 1}),
    ],
)
def test_every_form_of_a_score(result: Any, score: Any) -> None:
    for function in (lambda **_: result, lambda solution_strs, **_: [result], lambda solution_strs: np.array([result])):
        scorer = UserFunction(function, PLACE).scorer("mine")
        assert asyncio.run(score_answer(scorer, "answer", "truth")) == score


def test_numbers_next_to_the_score_are_logged_and_texts_are_not() -> None:
    result = {"score": np.float32(0.5), "style": 1, "predicted": np.str_("abc"), "note": "1.5"}
    function = UserFunction(lambda solution_strs, **_: [result], PLACE)
    trajectory = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED)
    assert asyncio.run(function.judge(trajectory, "answer")) == (0.5, {"style": 1.0})


def test_a_scorer_gets_the_row_and_the_episode() -> None:
    trajectory = Trajectory(
        prompt=[Message("system", "Be brief."), Message("user", "6*7?")],
        stop_reason=StopReason.ANSWERED,
        turns=[
            Turn("call", calls=[ToolCall("a"), ToolCall("a")], observation="no"),
            Turn("odd", malformed="odd", observation="again"),
            Turn("42"),
        ],
        agent="react_agent",
        data_source="mine",
        response_tokens=9,
        seconds=1.5,
        row={
            "reward_model": {"style": "rule", "ground_truth": "42", "test_cases": ["a"]},
            "extra_info": {"index": 7, "num_turns": 100},
        },
        info={"step": 4},
    )
    trajectory.turns[0].results = [
        ToolResult("1", "a", "", ToolStatus.ERROR, reward=0.5),
        ToolResult("2", "a", ""),
    ]
    assert scorer_info(trajectory) == {
        "original_prompt": "6*7?",
        "step": 4,
        "style": "rule",
        "test_cases": ["a"],
        "index": 7,
        "data_source": "mine",
        "answer_marked": False,
        "num_turns": 6,
        "num_tool_calls": 2,
        "tool_errors": 1,
        "executed_calls": [{"name": "a", "arguments": {}}],
        "malformed_turns": 1,
        "stop_reason": "answered",
        "tool_rewards": [0.5],
        "response_tokens": 9,
        "seconds": 1.5,
    }


def test_a_request_to_a_service_keeps_its_own_numbers() -> None:
    asked = Trajectory([], StopReason.ANSWERED, row={"extra_info": {"num_turns": 5, "original_prompt": "6*7?"}})
    info = scorer_info(asked)
    assert (info["num_turns"], info["num_tool_calls"], info["original_prompt"]) == (5, 0, "6*7?")
