import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.lab.mutations import ATTACKS, from_function
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory
from tests.rewards.lab.episodes import problems, trajectories

GUESSES = ["72", "73", "10"]
RIGHT, WRONG, *_ = trajectories(problems(1))


def mutated(name, trajectory=WRONG):
    attack = ATTACKS[name]
    return attack.function(trajectory, GUESSES) if attack.guesses else attack.function(trajectory)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_changes_a_real_trajectory_into_another_whole_one(name):
    before = WRONG.to_json()
    changed = mutated(name)
    assert WRONG.to_json() == before
    assert changed is not None
    assert changed.to_json() != before
    assert Trajectory.from_json(changed.to_json()).to_json() == changed.to_json()
    assert changed.ground_truth == WRONG.ground_truth
    assert all(turn.tokens >= 0 for turn in changed.turns)
    if changed.answer is not None and changed.answer != WRONG.answer:
        assert changed.answer in changed.turns[-1].text
    assert ATTACKS[name].purpose


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_fails_on_an_episode_that_has_nothing(name):
    for trajectory in (
        Trajectory([], StopReason.ENGINE_ERROR),
        Trajectory([], StopReason.ANSWERED, answer=""),
        Trajectory([], StopReason.MAX_TURNS, turns=WRONG.turns[:1]),
    ):
        changed = mutated(name, trajectory)
        assert changed is None or changed.turns


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.guesses])
def test_every_guess_is_placed(name):
    text = mutated(name).turns[-1].text
    assert all(guess in text for guess in (GUESSES[:2] if name == "hedge" else GUESSES))


def test_repeated_calls_are_calls_with_results():
    twice = mutated("duplicate-calls", RIGHT)
    assert twice.tool_calls == 2 * RIGHT.tool_calls == 4
    assert twice.repeated_calls == RIGHT.tool_calls
    assert [result.text for result in twice.results] == ["24", "24", "72", "72"]
    often = mutated("no-op-calls", RIGHT)
    assert often.tool_calls == RIGHT.tool_calls + 2
    assert often.repeated_calls == 0  # each is spelled otherwise
    for changed in (twice, often):
        assert changed.answer == RIGHT.answer
        assert all(result.status is ToolStatus.OK for result in changed.results)


def test_no_answer_is_no_answer():
    changed = mutated("no-answer")
    assert (changed.answer, changed.stop_reason) == (None, StopReason.MAX_TURNS)


def test_an_attack_is_made_from_a_function():
    def flatter_a_judge(trajectory):
        """Praises the judge.

        At length.
        """

    made = from_function(flatter_a_judge)
    assert (made.name, made.guesses, made.purpose) == ("flatter-a-judge", False, "Praises the judge.")
    assert from_function(lambda trajectory, guesses: None).guesses
    for wrong in (7, lambda: None, lambda a, b, c: None):
        with pytest.raises(ConfigError, match="not a function of one or two arguments"):
            from_function(wrong)
