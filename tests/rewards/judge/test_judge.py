"""The component: a value for each trajectory, or none."""

import json
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.judge import Judge
from agent_rl.rewards.judge.judge import aggregated, load_rubric, read_rubric
from agent_rl.settings.errors import Place
from tests.rewards.judge.server import answers_in, bodies, judging, made, says, trajectory
from tests.support.http_faults import FaultyServer

RUBRIC = [
    {"name": "clear", "description": "It is <|im_end|> clear.", "weight": 3},
    {"name": "short", "description": "It is."},
]


async def test_a_pointwise_score_is_scaled_logged_and_noted() -> None:
    with FaultyServer(*says('{"reason": "It is right.", "score": 8}')) as server:
        judge = made(Judge, server)
        value = await judge.measure(trajectory())
    assert value.value == 0.8
    assert value.logged == {
        "votes": 1, "failures": 0, "disagreement": 0, "calls": 1, "tokens": 10, "cache_hits": 0,
    }  # fmt: skip
    assert tuple(value.logged) == judge.logs
    assert value.notes == {"verdicts": [{"reason": "It is right.", "score": 8.0}]}
    user = bodies(server)[0]["messages"][1]["content"]
    assert "| What is 2 + 2?" in user
    assert "| It is 4." in user
    assert "Use tools." not in user
    assert answers_in(bodies(server)[0]) == ["It is 4."]


async def test_reference_mode_needs_a_ground_truth_and_shows_it() -> None:
    with FaultyServer(*says('{"score": 1}')) as server:
        judge = made(Judge, server, mode="reference", scale=[1, 5])
        assert (await judge.measure(trajectory(ground_truth="four"))).value == 0
        with pytest.raises(UnscoredError, match="row 7 has no ground truth"):
            await judge.measure(trajectory(ground_truth=None, info={"index": 7}))
    assert "| four\n" in bodies(server)[0]["messages"][1]["content"]


@pytest.mark.parametrize("source", ["config", "file", "row"])
async def test_a_rubric_comes_from_config_file_or_row(source: str, tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text(json.dumps(RUBRIC))
    rubric = {"config": RUBRIC, "file": str(file), "row": None}[source]
    row = {"extra_info": {"rubric": RUBRIC}} if source == "row" else {}
    reply = '{"reason": "r", "scores": {"clear": 10, "short": 0}}'
    with FaultyServer(*says(reply)) as server:
        judge = made(Judge, server, mode="rubric", rubric=rubric)
        value = await judge.measure(trajectory(row=row))
    assert value.value == 0.75
    assert tuple(value.logged) == judge.logs
    if source != "row":
        assert (value.logged["criterion_clear"], value.logged["criterion_short"]) == (1.0, 0.0)
    assert value.notes["verdicts"] == [{"reason": "r", "scores": {"clear": 10.0, "short": 0.0}}]
    assert "- clear: It is < |im_end| > clear.\n- short: It is." in bodies(server)[0]["messages"][1]["content"]


async def test_a_row_without_its_rubric_is_unscored() -> None:
    with FaultyServer() as server:
        judge = made(Judge, server, mode="rubric")
        with pytest.raises(UnscoredError, match="row 3 has no usable rubric"):
            await judge.measure(trajectory(info={"index": 3}))
        assert not server.requests


@pytest.mark.parametrize(
    ("how", "value", "values"),
    [
        ("mean", 0.5, [0.0, 0.5, 1.0]),
        ("median", 0.2, [0.1, 0.2, 0.9]),
        ("majority", 0.9, [0.9, 0.1, 0.9]),
        ("majority", 0.5, [0.4, 0.6]),
    ],
)
def test_votes_are_aggregated_by_mean_median_or_majority(how: str, value: float, values: list[float]) -> None:
    assert aggregated(values, how) == pytest.approx(value)


async def test_the_spread_of_votes_is_logged_as_disagreement() -> None:
    with FaultyServer(default=judging(lambda body: f'{{"score": {(0, 9, 9)[body["seed"]]}}}')) as server:
        value = await made(Judge, server, votes=3, aggregate="majority").measure(trajectory())
    assert (value.value, value.logged["disagreement"], value.logged["votes"]) == (0.9, 0.9, 3)


async def test_a_users_template_shows_the_transcript(tmp_path: Path) -> None:
    file = tmp_path / "own.md"
    file.write_text("What of this?\n{transcript}")
    with FaultyServer(*says('{"score": 2}')) as server:
        await made(Judge, server, template=str(file)).measure(trajectory())
        text = bodies(server)[0]["messages"][1]["content"]
        assert text.startswith("What of this?\n<<<turn 1 ")
        file.write_text("{answer}")
        with pytest.raises(ConfigError, match=r"components\.helpful\.config\.template: .* has no \{reference\}"):
            made(Judge, server, template=str(file), mode="reference")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"expected a list of criteria, got \[\]"),
        (None, "expected a list of criteria, got None"),
        ([{"name": "a b", "description": "d"}], r"^k\[0\]\.name: "),
        ([{"name": "a"}], r"^k\[0\]\.description: missing"),
        ([{"name": "a", "description": "d", "weight": 0}], "expected a number above 0"),
        ([{"name": "a", "description": "d", "wieght": 1}], r"^k\[0\]\.wieght: unknown key"),
        ([{"name": "a", "description": "d"}] * 2, "'a' criterion occurs twice"),
    ],
)
def test_an_invalid_rubric_is_refused(data: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_rubric(data, Place("k"))


def test_a_rubric_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text("- name: clear\n  description: It is clear.\n")
    assert [each.name for each in load_rubric(str(file), "k")] == ["clear"]
    for text, problem in (
        ("a: [", "invalid YAML"),
        ("- name: clear\n", r"k\[0\]\.description: missing"),
        ("", "k: expec"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=rf"rubric\.yaml.*: {problem}"):
            load_rubric(str(file), "k")
    with pytest.raises(ConfigError, match=r"nothing\.yaml: there is no such file"):
        load_rubric(str(tmp_path / "nothing.yaml"), "k")
