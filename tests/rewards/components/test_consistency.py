import asyncio
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import GroupComponent, make_component
from agent_rl.trajectory import StopReason, Trajectory


def shares(answers: list[str | None], config: dict[str, Any], source: str = "math") -> list[Any]:
    component = make_component("agreement", "consistency", config, "agent_rl.reward.components.agreement")
    assert isinstance(component, GroupComponent)
    group = [Trajectory([], StopReason.ANSWERED, answer=answer, data_source=source) for answer in answers]
    return asyncio.run(component.measure_group(group))


def test_equivalent_answers_count_together() -> None:
    values = shares(["0.5", "\\frac{1}{2}", "50\\%", "2", None, "0.5"], {"scorer": "math"})
    assert [value.value for value in values] == pytest.approx([4 / 6, 4 / 6, 4 / 6, 1 / 6, 0, 4 / 6])
    assert {value.logged["answers"] for value in values} == {2.0}


def test_the_data_source_decides_how() -> None:
    values = shares(["the Paris", "paris", "Rome"], {}, "searchR1_nq")
    assert [value.value for value in values] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


def test_an_answer_that_nothing_can_be_judged_by_agrees_with_itself() -> None:
    values = shares(["I do not know", "I do not know", "18"], {"scorer": "gsm8k"})
    assert [value.value for value in values] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


def test_a_scorer_that_fails_leaves_the_group_unscored(tmp_path: Any) -> None:
    (tmp_path / "down.py").write_text(
        "from agent_rl.errors import UnscoredError\n"
        "async def score(solution_str, ground_truth, extra_info):\n    raise UnscoredError('the server is down')\n"
    )
    with pytest.raises(UnscoredError, match="the server is down"):
        shares(["a", "b"], {"scorer": f"{tmp_path}/down.py:score"})


def test_a_scorer_that_does_not_exist_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"agreement.config.scorer: there is no scorer 'maths'. Did you mean 'math'"):
        shares(["a"], {"scorer": "maths"})
