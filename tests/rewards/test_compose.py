import math
import subprocess
import sys

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.compose import COMPONENTS, SCORED_STOP_REASONS, extra_info, score
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Score, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

KEYS = {
    *{
        "acc",
        "correctness",
        "efficiency",
        "format",
        "tool_calls",
        "tool_errors",
        "repeated_calls",
        "malformed_turns",
        "malformed_rate",
    },
    *{"turns", "answered", "tool_seconds", "generation_seconds", "overlong"},
    *{
        "stop_answered",
        "stop_max_turns",
        "stop_max_tool_calls",
        "stop_max_tokens",
        "stop_max_seconds",
        "stop_malformed",
        "stop_repetition",
        "stop_stopped",
    },
}


def _trajectory(**fields):
    call, result = ToolCall("python"), ToolResult("", "python", "boom", status=ToolStatus.ERROR)
    turns = [
        Turn(text="a", calls=[call] * 5, results=[result] * 2, generation_seconds=1.5, tool_seconds=0.25),
        Turn(text="b", malformed="no action", generation_seconds=0.5),
    ]
    values = {"turns": turns, "answer": "18", "ground_truth": "18", "stop_reason": StopReason.ANSWERED, **fields}
    return Trajectory(prompt=[], **values)


def test_the_total_is_the_weighted_sum_of_unweighted_components():
    settings = RewardSettings.model_validate({"correctness": {"weight": 2}, "efficiency": {"weight": 0.5}})
    result = score(_trajectory(), settings)
    expected = {"correctness": 1.0, "efficiency": -0.2, "format": -0.5, "overlong": 0.0}
    assert result.components == pytest.approx(expected)
    assert result.total == pytest.approx(2 * 1.0 + 0.5 * -0.2 + 0.2 * -0.5)
    assert tuple(result.components) == COMPONENTS


def test_every_component_has_its_settings_section():
    assert set(COMPONENTS) == set(RewardSettings.model_fields)


def test_another_verdict_replaces_correctness_and_needs_no_numeric_ground_truth():
    result = score(_trajectory(ground_truth="Paris"), RewardSettings(), verdict=0.5)
    assert result.components["correctness"] == 0.5
    own = _trajectory(ground_truth="Paris", verdict=0.25)
    assert score(own, RewardSettings()).components["correctness"] == 0.25
    assert score(own, RewardSettings(), verdict=0.5).components["correctness"] == 0.5


def test_a_long_episode_loses_reward_when_the_settings_say_so():
    settings = RewardSettings.model_validate({"overlong": {"penalty": 1, "weight": 0.5}})
    long, short = (score(_trajectory(response_tokens=n), settings, max_response_tokens=100) for n in (90, 80))
    assert (long.components["overlong"], short.components["overlong"]) == (-0.5, 0.0)
    assert long.total == pytest.approx(short.total - 0.25)


@pytest.mark.parametrize(
    ("overlong", "limit", "key"),
    [({"penalty": 1}, None, "overlong"), ({"penalty": 1, "buffer_tokens": 101}, 100, "overlong.buffer_tokens")],
)
def test_an_overlong_penalty_needs_a_limit_that_it_fits(overlong, limit, key):
    settings = RewardSettings.model_validate({"overlong": overlong})
    with pytest.raises(ConfigError) as caught:
        score(_trajectory(), settings, max_response_tokens=limit)
    assert caught.value.key == f"agent_rl.reward.{key}"


def test_scoring_leaves_the_trajectory_alone():
    trajectory = _trajectory()
    before = trajectory.to_json()
    extra_info(trajectory, score(trajectory, RewardSettings()))
    assert trajectory.to_json() == before


@pytest.mark.parametrize("reason", [StopReason.ENGINE_ERROR, StopReason.ERROR])
@pytest.mark.parametrize("verdict", [None, 1.0])
def test_a_failure_of_the_infrastructure_is_no_zero(reason, verdict):
    with pytest.raises(UnscoredError, match=f"{reason.value}: connection lost"):
        score(_trajectory(stop_reason=reason, error="connection lost"), RewardSettings(), verdict=verdict)


def test_extra_info_of_a_trajectory():
    trajectory = _trajectory(stop_reason=StopReason.MAX_TURNS, answer=None)
    info = extra_info(trajectory, score(trajectory, RewardSettings()))
    expected = {
        "acc": 0.0,
        "correctness": 0.0,
        "efficiency": -0.2,
        "format": -0.5,
        "tool_calls": 5.0,
        "tool_errors": 2.0,
        "repeated_calls": 4.0,
    }
    expected |= {"malformed_turns": 1.0, "malformed_rate": 0.5, "turns": 2.0, "answered": 0.0, "tool_seconds": 0.25}
    expected |= {"generation_seconds": 2.0, "stop_max_turns": 1.0}
    assert info == pytest.approx(dict.fromkeys(KEYS, 0.0) | expected)


@pytest.mark.parametrize("reason", SCORED_STOP_REASONS)
@pytest.mark.parametrize("fields", [{}, {"turns": []}, {"answer": None}])
def test_every_scored_sample_has_the_same_keys_and_finite_floats(reason, fields):
    trajectory = _trajectory(stop_reason=reason, **fields)
    info = extra_info(trajectory, score(trajectory, RewardSettings()))
    assert set(info) == KEYS
    assert all(type(value) is float and math.isfinite(value) for value in info.values())
    assert sum(value for key, value in info.items() if key.startswith("stop_")) == 1.0


def test_extra_info_logs_the_given_score():
    given = Score(total=9.0, components={"correctness": 0.25, "efficiency": 0.0, "format": 0.0, "overlong": 0.0})
    info = extra_info(_trajectory(), given)
    assert (info["acc"], info["correctness"]) == (0.25, 0.25)


def test_scoring_needs_neither_verl_nor_torch():
    program = "import sys, agent_rl.rewards; print({'verl', 'torch', 'numpy', 'omegaconf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
