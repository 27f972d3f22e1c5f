import asyncio
import math
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Value
from agent_rl.rewards.components.terms import SCORED_STOP_REASONS
from agent_rl.rewards.compose import Reward, extra_info
from agent_rl.settings import RewardSettings
from agent_rl.settings.importing import find_object
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn
from tests.support.scoring import score

NAMES = """
acc correctness efficiency format overlong tool_calls tool_errors repeated_calls malformed_turns malformed_rate turns
answered tool_seconds generation_seconds left_out stop_answered stop_max_turns stop_max_tool_calls stop_max_tokens
stop_max_seconds stop_malformed stop_repetition stop_stopped
"""
KEYS = set(NAMES.split())


def _trajectory(**fields):
    call, result = ToolCall("python"), ToolResult("", "python", "boom", status=ToolStatus.ERROR)
    turns = [
        Turn(text="a", calls=[call] * 5, results=[result] * 2, generation_seconds=1.5, tool_seconds=0.25),
        Turn(text="b", malformed="no action", generation_seconds=0.5),
    ]
    values = {"turns": turns, "answer": "18", "ground_truth": "18", "stop_reason": StopReason.ANSWERED, **fields}
    return Trajectory(prompt=[], **values)


def test_the_total_is_the_weighted_sum_of_unweighted_components():
    settings = RewardSettings.model_validate(
        {"correctness": {"weight": 2}, "efficiency": {"weight": 0.5}, "format": {"turns": 3}}
    )
    result = score(_trajectory(), settings)
    expected = {"correctness": 1.0, "efficiency": -0.2, "format": -1 / 3, "overlong": 0.0}
    assert result.components == pytest.approx(expected)
    assert result.total == pytest.approx(2 * 1.0 + 0.5 * -0.2 + 0.2 * -1 / 3)
    assert tuple(result.components) == ("correctness", "efficiency", "format", "overlong")


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


def test_nothing_of_an_earlier_scoring_remains():
    earlier = {"logged": {"tone_votes": 3.0}, "notes": {"tone": {"reason": "because"}}}
    trajectory = _trajectory(info={"step": 1, "reward": earlier})
    assert set(extra_info(trajectory, score(trajectory))) == KEYS
    assert trajectory.info == {"step": 1}


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
        "format": -1 / 3,
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


PROBES = """
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import Component, GroupComponent, Value
from agent_rl.rewards.component import ComponentConfig

asked = []

class Fixed(Component):
    logs = ("votes",)

    class Config(ComponentConfig):
        value: float = 0.0
        error: str = ""

    async def measure(self, trajectory):
        asked.append(self.name)
        if self.config.error:
            raise {
                "unscored": UnscoredError,
                "timeout": TimeoutError,
                "connection": ConnectionResetError,
                "config": lambda text: ConfigError("k", text, "r"),
                "bug": KeyError,
            }[self.config.error]("said")
        return Value(self.config.value, {"votes": 3}, {"reason": "because"})

class Length(Component):
    async def measure(self, trajectory):
        return Value(float(len(trajectory.answer)))

class Returns(Component):
    class Config(ComponentConfig):
        text: str

    async def measure(self, trajectory):  # returns
        return eval(self.config.text)

class Fewer(GroupComponent):
    async def measure_group(self, group):
        return [Value(0.0)]

class Breaks(GroupComponent):
    async def measure_group(self, group):
        return [Value(len(each.answer) / 0) for each in group]

def no_sum(values, weights, trajectory):
    return values["helpful"]

class Share(GroupComponent):
    async def measure_group(self, group):
        return [Value(1 / len(group)) for _ in group]
"""


@pytest.fixture
def probes(tmp_path):
    """The kind of a probe by its class, and what has been asked."""
    (tmp_path / "probes.py").write_text(PROBES)
    return lambda name: f"{tmp_path}/probes.py:{name}"


def asked(probes):
    found = find_object(probes("asked"), Path())
    names = list(found)
    found.clear()
    return names


def test_a_component_counts_with_its_weight_and_is_logged_under_its_name(probes):
    components = {"tone": {"kind": probes("Fixed"), "weight": 0.5, "config": {"value": 0.8}}}
    trajectory = _trajectory(info={"step": 1})
    result = score(trajectory, {"components": components})
    assert result.components["tone"] == 0.8
    assert result.total == pytest.approx(score(_trajectory()).total + 0.4)
    assert extra_info(trajectory, result)["tone_votes"] == 3.0
    assert trajectory.info["reward"]["notes"] == {"tone": {"reason": "because"}}


@pytest.mark.parametrize(
    ("name", "metric"), [("turns", 2.0), ("acc", 1.0), ("stop_answered", 1.0), ("gateway_sequences", 3.0)]
)
def test_a_component_with_the_name_of_a_metric_hides_neither(name, metric, probes):
    trajectory = _trajectory(info={"gateway": {"conversations": 3}})
    result = score(trajectory, {"components": {name: {"kind": probes("Fixed"), "config": {"value": 0.8}}}})
    info = extra_info(trajectory, result)
    assert (info[name], info[f"{name}_reward"]) == (metric, 0.8)


def test_a_component_does_not_get_the_name_that_verl_gives_the_total(probes):
    result = score(_trajectory(), {"components": {"reward": {"kind": probes("Fixed"), "config": {"value": 0.8}}}})
    info = extra_info(_trajectory(), result)
    assert "reward" not in info
    assert info["reward_reward"] == 0.8


def test_a_closed_gate_saves_the_question_and_the_value(probes):
    tone = {"kind": probes("Fixed"), "gate": "correctness >= 1 and format < 0", "config": {"value": 0.8}}
    right, wrong = _trajectory(), _trajectory(answer="17")
    assert score(right, {"components": {"tone": tone}}).components["tone"] == 0.8
    assert asked(probes) == ["tone"]
    result = score(wrong, {"components": {"tone": tone}})
    assert (result.components["tone"], asked(probes)) == (0.0, [])
    infos = [extra_info(each, score(each, {"components": {"tone": tone}})) for each in (right, wrong)]
    assert [info["tone_open"] for info in infos] == [1.0, 0.0]
    assert infos[0].keys() == infos[1].keys()


def test_gates_may_follow_one_another(probes):
    chain = {name: {"kind": probes("Fixed"), "gate": f"{other} >= 0"} for name, other in [("b", "a"), ("c", "b")]}
    score(_trajectory(), {"components": {**chain, "a": {"kind": probes("Fixed")}}})
    assert asked(probes) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("gates", "more", "message"),
    [
        ({"tone": "corectness > 0"}, {}, r"tone\.gate: there is no component .*Did you mean 'corr"),
        ({"tone": "mood > 0", "mood": "tone > 0"}, {}, r"tone\.gate: 'mood' is not measured before 'tone'"),
        ({"tone": None}, {"efficiency": {"gate": "tone > 0"}}, r"efficiency\.gate: 'tone' is not measured before"),
    ],
)
def test_a_gate_that_never_opens_is_refused(gates, more, message, probes):
    components = {name: {"kind": probes("Fixed"), "gate": gate} for name, gate in gates.items()}
    with pytest.raises(ConfigError, match=message):
        score(_trajectory(), {"components": components, **more})


def test_a_value_is_normalized_then_clipped_and_the_raw_one_kept(probes):
    tone = {"kind": probes("Fixed"), "normalize": [0, 10], "clip": [0, 0.6], "config": {"value": 8}}
    trajectory = _trajectory()
    result = score(trajectory, {"components": {"tone": tone}})
    assert result.components["tone"] == 0.6
    assert extra_info(trajectory, result)["tone_raw"] == 8.0


def test_a_component_may_log_its_own_raw_number(tmp_path):
    code = "from agent_rl import Component\nfrom agent_rl.rewards import Value\n\nclass Share(Component):\n"
    code += "    logs = ('raw',)\n\n    async def measure(self, trajectory):\n        return Value(0.5, {'raw': 37})\n"
    (tmp_path / "share.py").write_text(code)
    trajectory = _trajectory()
    result = score(trajectory, {"components": {"share": {"kind": f"{tmp_path}/share.py:Share"}}})
    assert extra_info(trajectory, result)["share_raw"] == 37.0


def test_a_weight_may_follow_the_step(probes):
    weight = {"start": 0, "end": 1, "from_step": 0, "to_step": 10}
    settings = {"components": {"tone": {"kind": probes("Fixed"), "weight": weight, "config": {"value": 1}}}}
    base = score(_trajectory()).total
    totals = [score(_trajectory(info={"step": step}), settings).total - base for step in (0, 5, 20)]
    assert totals == pytest.approx([0, 0.5, 1])


def line(probes, text):
    """`file:line` of the probes' line with this text."""
    path = probes("x").removesuffix(":x")
    return f"{path}:{next(n for n, each in enumerate(PROBES.splitlines(), 1) if text in each)}"


@pytest.mark.parametrize(
    ("error", "section", "kind", "text"),
    [
        ("unscored", {}, UnscoredError, "tone: said"),
        ("timeout", {}, UnscoredError, "tone: TimeoutError: said"),
        ("connection", {}, UnscoredError, "tone: ConnectionResetError: said"),
        ("config", {}, ConfigError, "k: said. r"),
        ("bug", {}, UserCodeError, "tone failed at {raise}: KeyError: 'said'"),
        ("bug", {"on_error": "unscored"}, UnscoredError, "tone failed at {raise}: KeyError: 'said'"),
        ("sum", {}, UserCodeError, "combine failed at {sum}: KeyError: 'helpful'"),
        ("sum", {"on_error": "unscored"}, UnscoredError, "combine failed at {sum}: KeyError: 'helpful'"),
    ],
)
def test_what_fails_is_unscored_and_what_raises_stops_the_run_unless_it_shall_not(error, section, kind, text, probes):
    section |= {"combine": probes("no_sum")} if error == "sum" else {}
    tone = {"kind": probes("Fixed"), "weight": 0.01, "config": {"error": error.removeprefix("sum")}}
    with pytest.raises(kind) as caught:
        score(_trajectory(id="u_3"), {**section, "components": {"tone": tone}})
    places = {"raise": line(probes, "raise {"), "sum": line(probes, "return values[")}
    whose = ". The trajectory is 'u_3'" if kind is UserCodeError else ""
    assert str(caught.value) == text.format_map(places) + whose


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("Fewer", "TypeError: the component returned 1 value.* for a group of 2"),
        ("Breaks", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_group_component_that_raises_stops_the_run(kind, problem, probes):
    reward = Reward(RewardSettings.model_validate({"components": {"share": {"kind": probes(kind)}}}))
    with pytest.raises(UserCodeError, match=problem):
        asyncio.run(reward.score_group(group_of("1", "123")))


@pytest.mark.parametrize("text", ["0.5", "Value(0.5)", "__import__('numpy').float32(0.5)"])
def test_a_component_may_return_a_number(text, probes):
    settings = {"components": {"mine": {"kind": probes("Returns"), "config": {"text": text}}}}
    assert score(_trajectory(), settings).components["mine"] == 0.5


@pytest.mark.parametrize("text", ["None", "'0.5'", "Value(None)", "[0.5]"])
def test_a_component_that_returns_no_number_stops_the_run(text, probes):
    settings = {"components": {"mine": {"kind": probes("Returns"), "config": {"text": text}}}}
    with pytest.raises(UserCodeError, match="neither a Value nor a number") as caught:
        score(_trajectory(), settings)
    assert caught.value.place == line(probes, "async def measure(self, trajectory):  # returns")


@pytest.mark.parametrize("number", ["fractions.Fraction(1, 2)", "decimal.Decimal('0.5')", "numpy.array(0.5)"])
@pytest.mark.parametrize("more", [{}, {"normalize": [0, 1]}, {"normalize": "group"}])
def test_numbers_of_every_type_become_floats(number, more, probes):
    module = number.partition(".")[0]
    text = f"(lambda {module}: Value({number}, {{'votes': {number}}}))(__import__('{module}'))"
    settings = {"components": {"mine": {"kind": probes("Returns"), "config": {"text": text}, **more}}}
    trajectory = _trajectory()
    components = score(trajectory, settings).components
    assert (type(components["mine"]), components["mine"]) == (float, 0.0 if more.get("normalize") == "group" else 0.5)
    assert Trajectory.from_json(trajectory.to_json()).info == trajectory.info


@pytest.mark.parametrize("text", ["Value(1, {'votes': None})", "Value(1, {'votes': '3'})", "Value(1, {}, ['why'])"])
def test_a_component_that_logs_no_number_or_has_no_notes_stops_the_run(text, probes):
    settings = {"components": {"mine": {"kind": probes("Returns"), "config": {"text": text}}}}
    with pytest.raises(UserCodeError, match="mine failed at") as caught:
        score(_trajectory(), settings)
    assert caught.value.place == line(probes, "async def measure(self, trajectory):  # returns")
    with pytest.raises(UnscoredError):
        score(_trajectory(), {**settings, "on_error": "unscored"})


def test_a_value_that_is_no_number_is_no_score(probes):
    settings = {"components": {"long": {"kind": probes("Length"), "normalize": [0, 1e-320]}}}
    with pytest.raises(UnscoredError, match="the total is inf"):
        score(_trajectory(), settings)


def group_of(*answers, **fields):
    return [_trajectory(answer=answer, **fields) for answer in answers]


def test_a_group_is_scored_together(probes):
    components = {"share": {"kind": probes("Share")}, "long": {"kind": probes("Length"), "normalize": "group"}}
    reward = Reward(RewardSettings.model_validate({"components": components}))
    group = group_of("1", "123")
    group.insert(1, _trajectory(stop_reason=StopReason.ERROR, error="lost"))
    first, lost, last = asyncio.run(reward.score_group(group))
    assert (first.components["share"], first.components["long"]) == (0.5, -1.0)
    assert (last.components["share"], last.components["long"]) == (0.5, 1.0)
    assert isinstance(lost, UnscoredError)
    assert reward.needs_groups
    assert not Reward(RewardSettings()).needs_groups


def test_a_data_source_may_have_a_reward_of_its_own(probes):
    settings = {
        "components": {"tone": {"kind": probes("Fixed"), "config": {"value": 1}}},
        "per_data_source": {
            "gsm8k*": {"format": {"turns": 3}, "components": {"tone": None}},
            "*": {
                "correctness": {"scorer": "none"},
                "efficiency": {"weight": 1},
                "components": {"tone": {"weight": 3}},
            },
        },
    }
    reward = Reward(RewardSettings.model_validate(settings))
    totals = {}
    keys = set()
    for source in ("gsm8k/main", "chat"):
        trajectory = _trajectory(data_source=source)
        result = asyncio.run(reward.score(trajectory))
        totals[source] = result.total
        keys.add(tuple(extra_info(trajectory, result)))
    assert totals == pytest.approx({"gsm8k/main": 1 + 0.2 * -1 / 3, "chat": -0.2 + 3})
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"max_unscored_share": 0}, r"agent_rl\.reward\.per_data_source\.x\.max_unscored_share: this key cannot be"),
        ({"efficency": {}}, r"agent_rl\.reward\.per_data_source\.x\.efficency: unknown key .*'efficiency'"),
        ({"components": None}, r"agent_rl\.reward\.per_data_source\.x\.components: expected a mapping, got null"),
        ({"components": {"tone": {"kind": "jugde"}}}, r"per_data_source\.x\.components\.tone\.kind: there is no kind"),
    ],
)
def test_a_mistake_of_a_data_source_is_found_before_its_first_row(override, message):
    with pytest.raises(ConfigError, match=message):
        Reward(RewardSettings.model_validate({"per_data_source": {"x": override}}))


@pytest.mark.parametrize(
    ("own", "scorer"),
    [
        ({"name": "gsm8k", "answer": "any"}, {"name": "gsm8k", "answer": "any"}),
        ({"name": "tool_match"}, {"name": "tool_match"}),
        ({"all_or_nothing": False}, {"name": "code", "all_or_nothing": False}),
        ("gsm8k", "gsm8k"),
    ],
)
def test_another_scorer_of_a_data_source_has_only_its_own_options(own, scorer):
    correctness = {"scorer": {"name": "code", "all_or_nothing": True}, "weight": 2}
    settings = {"correctness": correctness, "per_data_source": {"x": {"correctness": {"scorer": own}}}}
    reward = Reward(RewardSettings.model_validate(settings))
    assert reward.sources["x"].settings.correctness.scorer == scorer
    assert reward.sources["x"].settings.correctness.weight == 2


def test_without_a_scorer_there_is_no_accuracy():
    trajectory = _trajectory(ground_truth=None)
    result = score(trajectory, {"correctness": {"scorer": "none"}})
    assert "acc" not in extra_info(trajectory, result)
    assert result.total == 0.0


API = "http://127.0.0.1:1/get_reward"


@pytest.mark.parametrize("api", [API, {"url": API, "logs": ["helpful"]}])
def test_a_reward_service_gives_correctness(api, monkeypatch):
    async def measure(self, trajectory):
        return Value(0.75, dict.fromkeys(self.logs, 0.5))

    monkeypatch.setattr("agent_rl.rewards.components.reward_api.RewardApi.measure", measure)
    trajectory = _trajectory(ground_truth=None)
    result = score(trajectory, {"reward_api": api})
    assert result.components["correctness"] == 0.75
    assert extra_info(trajectory, result).get("correctness_helpful") == (0.5 if isinstance(api, dict) else None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"correctness": {"scorer": "gsm8k"}, "reward_api": API}, r"correctness\.scorer: both 'gsm8k' and reward"),
        ({"reward_api": "host:80"}, r"agent_rl\.reward\.reward_api\.config\.url: .*http"),
        ({"reward_api": {"url": API, "log": []}}, r"agent_rl\.reward\.reward_api\.config\.log: unknown .*'logs'"),
    ],
)
def test_an_unusable_reward_service_is_a_configuration_error(settings, message):
    with pytest.raises(ConfigError, match=message):
        Reward(RewardSettings.model_validate(settings))


def rewarded(**keys):
    turns = [
        Turn("", calls=[ToolCall("a")], results=[ToolResult("", "a", "", reward=0.5)]),
        Turn("", notes={"reward": 2}),
    ]
    return score(_trajectory(turns=turns), RewardSettings.model_validate({"components": {"steps": {**STEPS, **keys}}}))


STEPS = {"kind": "tool_rewards", "weight": 0.1}


def test_the_weighted_rewards_of_turns_are_part_of_the_score():
    found = rewarded()
    assert found.turn_rewards == pytest.approx([0.05, 0.2])
    assert found.total == pytest.approx(1 + 0.25)


@pytest.mark.parametrize("keys", [{"clip": [0, 1]}, {"normalize": "tanh"}, {"gate": "correctness >= 1"}])
def test_a_component_that_later_turns_may_change_has_no_rewards_of_turns(keys):
    assert rewarded(**keys).turn_rewards == []
