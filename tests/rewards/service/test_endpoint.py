"""An endpoint's limits, and what becomes of everything that fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.endpoint import RewardEndpoint
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.rewards.service.wire import Arguments, Scored, Unscored, Whole
from agent_rl.trajectory import Message, StopReason, Trajectory

COUNTING = """
import threading
import time

lock = threading.Lock()
running = most = 0


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(float(solution_str))
    with lock:
        running -= 1
    return {"score": extra_info["points"], "most": most}
"""


def scorer(folder: Path, text: str = COUNTING, **limits: Any) -> RewardEndpoint:
    (folder / "rules.py").write_text(text)
    return RewardEndpoint("rules", ServiceSettings(rules_file=str(folder / "rules.py"), **limits))


def judge_of(section: dict[str, Any]) -> RewardEndpoint:
    return RewardEndpoint("judge", ServiceSettings.model_validate({"judge": section}))


def test_no_more_than_the_limit_are_measured_at_a_time_and_order_is_kept(tmp_path: Path) -> None:
    items = [Arguments(solution_str="0.2", extra_info={"points": number}) for number in range(120)]
    answers = asyncio.run(scorer(tmp_path, max_concurrent=40).answer(items))
    verdicts = [answer for answer in answers if isinstance(answer, Scored)]
    assert [verdict.score for verdict in verdicts] == list(range(120))
    assert max(verdict.logged["most"] for verdict in verdicts) == 40  # more than asyncio has threads for


LEVEL = """
from agent_rl import Component
from agent_rl.rewards import Value

class Level(Component):
    logs = ("words",)

    async def measure(self, trajectory):
        row = trajectory.row
        value = row.get("level", 0) + row["extra_info"]["bonus"] + len(row["data_source"])
        return Value(value, {"words": 3}, {"said": "fair"})
"""


def test_a_component_sees_the_rows_columns(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LEVEL)
    component = {"kind": f"{tmp_path}/mine.py:Level"}
    endpoint = judge_of({"components": {"level": component}, "correctness": {"scorer": "none"}})
    row = {"data_source": "sums", "level": 3, "extra_info": {"bonus": 1}}
    given = Trajectory(prompt=[Message("user", "?")], stop_reason=StopReason.ANSWERED, answer="", row=row)
    items = [
        Arguments(solution_str="", data_source="sums", extra_info={"bonus": 1}),
        Whole(trajectory=given),
    ]
    answers = asyncio.run(endpoint.answer(items))
    assert [answer.components["level"] for answer in answers if isinstance(answer, Scored)] == [5, 8]


def test_a_component_that_raises_leaves_its_item_unscored_and_names_the_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(LEVEL)
    endpoint = judge_of({"components": {"level": {"kind": f"{tmp_path}/mine.py:Level"}}})
    items = [
        Arguments(solution_str="4", ground_truth="4", data_source="gsm8k", extra_info=info)
        for info in ({}, {"bonus": 1})
    ]
    bad, good = asyncio.run(endpoint.answer(items))
    assert isinstance(bad, Unscored)
    assert bad.error.startswith(f"level failed at {tmp_path}/mine.py:10: KeyError: 'bonus'")
    assert 'row["extra_info"]["bonus"]' in caplog.text
    assert isinstance(good, Scored)


def test_a_timeout_leaves_only_its_item_unscored(tmp_path: Path) -> None:
    items = [Arguments(solution_str=seconds, extra_info={"points": 1}) for seconds in ("0.7", "0")]
    slow, fast = asyncio.run(scorer(tmp_path, timeout_s=0.3).answer(items))
    assert isinstance(slow, Unscored)
    assert slow.error == "not scored within 0.3 s"
    assert isinstance(fast, Scored)


def test_a_section_that_cannot_be_used_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^judge\.components\.helpful\.kind: there is no kind 'juge'"):
        judge_of({"components": {"helpful": {"kind": "juge"}}})
    with pytest.raises(ConfigError, match="judge: a component compares the samples of a prompt"):
        judge_of({"format": {"normalize": "group"}})


def test_what_components_log_and_note_is_answered_and_nothing_of_an_earlier_scoring(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LEVEL)
    endpoint = judge_of({"components": {"level": {"kind": f"{tmp_path}/mine.py:Level"}}})
    scored = Trajectory([], StopReason.ANSWERED, answer="4", ground_truth="4", info={"reward": {"logged": {"old": 1}}})
    scored.row = {"data_source": "sums", "extra_info": {"bonus": 1}}
    (answer,) = asyncio.run(endpoint.answer([Whole(trajectory=scored)]))
    assert isinstance(answer, Scored)
    assert (answer.score, answer.components["level"]) == (6, 5)
    assert (answer.logged, answer.notes) == ({"level_words": 3}, {"level": {"said": "fair"}})


def test_a_file_without_the_function_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no 'compute_score'"):
        scorer(tmp_path, "def compute_scores(): ...\n")
    with pytest.raises(ConfigError, match="rules_file: there is no file"):
        RewardEndpoint("rules", ServiceSettings(rules_file=str(tmp_path / "none.py")))


TRAJECTORY = Trajectory(
    [Message("user", "2+2?")],
    StopReason.ANSWERED,
    answer="4",
    ground_truth="5",
    data_source="mine",
    row={"extra_info": {"index": 7}},
)


def judge(folder: Path, body: str, prefix: str = "") -> Scored | Unscored:
    text = f"{prefix}def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    {body}\n"
    (answer,) = asyncio.run(scorer(folder, text).answer([Whole(trajectory=TRAJECTORY)]))
    return answer


@pytest.mark.parametrize("prefix", ["", "async "])
def test_it_gets_verls_arguments_and_the_trajectory(prefix: str, tmp_path: Path) -> None:
    body = "return {'score': 1, 'n': int(solution_str + ground_truth), 'said': data_source, **extra_info['extra']}"
    body = body.replace("extra_info['extra']", "{'i': extra_info['index'], 't': len(extra_info['trajectory'])}")
    answer = judge(tmp_path, body, prefix)
    assert isinstance(answer, Scored)
    assert (answer.score, answer.logged) == (1.0, {"n": 45.0, "i": 7.0, "t": len(TRAJECTORY.to_dict())})


@pytest.mark.parametrize("returned", ["None", "'1'", "{}", "{'score': '1'}", "{'points': 1}"])
def test_it_must_return_a_number(returned: str, tmp_path: Path) -> None:
    answer = judge(tmp_path, f"return {returned}")
    assert isinstance(answer, Unscored)
    assert "neither a number" in answer.error


@pytest.mark.parametrize("prompt", ["2+2?", [{"role": "user", "content": "2+2?"}]])
def test_a_prompt_is_a_question_or_a_conversation(prompt: Any) -> None:
    assert Arguments(solution_str="4", prompt=prompt).to_trajectory().prompt == [Message("user", "2+2?")]
