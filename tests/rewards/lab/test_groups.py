import asyncio
import json
from dataclasses import replace

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.lab.groups import group_key, grouped, read_trajectories, score_groups, summary
from agent_rl.trajectory import Score, StopReason, Trajectory, trace
from agent_rl.work.store import Pieces
from tests.rewards.lab import scorers


def one(name="", source="s", **info):
    return Trajectory([], StopReason.ANSWERED, id=name, data_source=source, answer="1", ground_truth="1", info=info)


def test_the_samples_of_one_prompt_in_one_step_are_a_group():
    same = [one("8f-2a_0", step=3, index=7), one("8f-2a_11", step=3, index=7)]
    others = [one("8f-2a_0", step=4), one("8f-2b_0", step=3), one("8f-2a_0", source="t", step=3)]
    assert len({group_key(each) for each in same}) == 1
    assert len({group_key(each) for each in [same[0], *others]}) == 4


def test_without_an_id_the_index_tells():
    first, again, other = one(index=7), one(index=7), one(index=8)
    alone = [one(), one()]
    assert grouped([first, alone[0], again, other, alone[1]]) == [[first, again], [alone[0]], [other], [alone[1]]]
    assert len(grouped([one("a", index=1), one("b", index=1)])) == 1
    assert len(grouped([one("a"), one("b"), one("a")])) == 2


def test_groups_are_scored_whole_and_the_originals_left_alone():
    scorer = scorers.By(scorers.fragile)
    groups = [[one("a_0"), replace(one("a_1"), answer="NaN", error="earlier")], [one("b_0")]]
    groups[0][0].error = "UnscoredError: the judge was down"
    before = [each.to_json() for group in groups for each in group]
    scored = asyncio.run(score_groups(groups, scorer, 2, Pieces()))
    assert scorer.groups == [2, 1]
    assert [[each.score for each in group] for group in scored] == [
        [Score(1.0, {"correctness": 1.0}), None],
        [Score(1.0, {"correctness": 1.0})],
    ]
    assert scored[0][0].error is None  # it has a score now
    assert scored[0][1].error == "UnscoredError: the parser failed"
    assert [each.to_json() for group in groups for each in group] == before


def test_why_an_episode_failed_outlives_being_scored():
    class Refusing:
        async def score_group(self, trajectories):
            return [UnscoredError("it ended by error") for _ in trajectories]

    failed = replace(one("a_0"), stop_reason=StopReason.ERROR, error="ToolError: gone")
    assert asyncio.run(score_groups([[failed]], Refusing(), 1, Pieces()))[0][0].error == "ToolError: gone"


def test_a_file_is_read_without_its_torn_line(tmp_path):
    path = tmp_path / "t.jsonl"
    for name in ("a_0", "a_1", "b_0"):
        trace.append(path, one(name))
    with open(path, "ab") as file:
        file.write(b'{"prompt": [')
    assert [each.id for each in read_trajectories(path)] == ["a_0", "a_1", "b_0"]
    assert len(read_trajectories(path, 2)) == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "other").write_text('{"a": 1}\n')
    for name, problem in (("nothing", "there is no such file"), ("empty", "no trajectories"), ("other", "line 1")):
        with pytest.raises(ConfigError, match=problem) as caught:
            read_trajectories(tmp_path / name)
        assert caught.value.key == str(tmp_path / name)


def with_total(source, total, error=None):
    score = None if total is None else Score(total, {"correctness": total})
    return Trajectory([], StopReason.ANSWERED, data_source=source, score=score, error=error)


def test_the_summary_has_means_by_data_source_and_errors():
    found = summary(
        [with_total("a", 1.0), with_total("a", 0.0), with_total("b", 0.5), with_total("b", None, "the judge is down")]
    )
    assert found["all"]["scored"] == 3
    assert found["all"]["unscored"] == 1
    assert found["all"]["reward"]["mean"] == 0.5
    assert found["data_sources"]["a"]["components"] == {"correctness": {"mean": 0.5, "std": 0.5}}
    assert found["data_sources"]["b"]["reward"] == {"mean": 0.5, "std": 0.0}
    assert found["errors"] == {"the judge is down": 1}
    assert json.loads(json.dumps(found)) == found
    assert summary([with_total("a", None, "x")])["all"]["reward"] is None
