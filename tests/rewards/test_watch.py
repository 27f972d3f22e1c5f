"""Which components are reported, when, and how often."""

from __future__ import annotations

from agent_rl.rewards.watch import STEPS, ComponentWatch


def run(values: dict[str, list[float | None]], steps: int = STEPS) -> list[str]:
    """What is said of as many steps as asked for, each with these values; None is an error."""
    watch, said = ComponentWatch(list(values)), []
    for _ in range(steps):
        rows = list(zip(*([(name, each) for each in its] for name, its in values.items()), strict=True))
        scored = [dict(row) for row in rows if all(value is not None for _, value in row)]
        errors = [f"UnscoredError: {name}: down" for row in rows for name, value in row if value is None]
        said += watch.step(scored, errors)  # type: ignore[arg-type]
    return said


def test_a_component_that_is_the_same_for_all_is_reported_once_with_its_name_and_value() -> None:
    values: dict[str, list[float | None]] = {"tone": [0.5] * 8, "long": [1.0, 2.0] * 4}
    assert run(values, STEPS - 1) == []
    (sentence,) = run(values, 3 * STEPS)
    assert sentence.startswith("the reward's component 'tone' is 0.5 for all 80 trajectories of 10 steps")


def test_one_other_value_is_enough() -> None:
    watch = ComponentWatch(["tone"])
    assert watch.step([{"tone": 0.25}], []) == []
    assert [said for _ in range(50) for said in watch.step([{"tone": 0.5}] * 8, [])] == []


def test_few_trajectories_are_not_enough() -> None:
    assert run({"tone": [0.5], "long": [1.0]}) == []
    assert len(run({"tone": [0.5], "long": [1.0]}, 100)) == 2


def test_a_component_that_only_fails_is_reported() -> None:
    watch = ComponentWatch(["judge", "correctness"])
    errors = ["UnscoredError: judge: the endpoint is away", "UnscoredError: judge failed at mine.py:3: KeyError: 'a'"]
    said = [
        each
        for _ in range(40)
        for each in watch.step(
            [{"correctness": value, "judge": 0.0, "judge_open": 0.0} for value in (0.0, 1.0)], errors
        )
    ]
    assert [each.partition(":")[0] for each in said] == [
        "the reward's component 'judge' has failed for all 64 trajectories that it was asked about, in 32 steps"
    ]


def test_a_closed_gate_is_no_value() -> None:
    watch = ComponentWatch(["judge"])
    closed, opened = {"judge": 0.0, "judge_open": 0.0}, {"judge": 0.7, "judge_open": 1.0}
    said = [each for _ in range(STEPS) for each in watch.step([closed] * 8 + [opened] * 8, [])]
    assert [each.split(" for all")[0] for each in said] == ["the reward's component 'judge' is 0.7"]
