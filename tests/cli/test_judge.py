"""`agent-rl judge try` asks the configured judges about one stored trajectory."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from agent_rl.cli.main import app
from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from tests.rewards.judge.server import bodies, says, trajectory
from tests.support.http_faults import FaultyServer

pytestmark = pytest.mark.slow


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    for number, answer in enumerate((None, "It is 4.", "It is 5.")):
        one = trajectory(answer)
        one.id = f"0_{number}"
        trace.append(tmp_path / "trace.jsonl", one)
    return tmp_path / "trace.jsonl"


def config(folder: Path, url: str, kind: str = "judge") -> str:
    judge = {"kind": kind, "gate": "correctness >= 1", "weight": 0.5, "config": {"url": url, "model": "m"}}
    section = {"reward": {"correctness": {"scorer": "math"}, "components": {"helpful": judge}}}
    (folder / "run.yaml").write_text(yaml.safe_dump({"agent_rl": section}))
    return str(folder / "run.yaml")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["judge", "try", *map(str, words)])


def test_the_judge_is_asked_about_the_first_answer_whatever_its_gate(stored: Path, tmp_path: Path) -> None:
    with FaultyServer(*says('{"reason": "polite", "score": 8}')) as server:
        result = run(stored, "--config", config(tmp_path, server.url))
        assert result.exit_code == 0, result.output
        assert "It is 4." in json.dumps(bodies(server)[-1])
    assert "question      What is 2 + 2?" in result.stdout
    assert "value       0.8" in result.stdout
    assert "polite" in result.stdout


def test_the_samples_of_a_prompt_are_compared(stored: Path, tmp_path: Path) -> None:
    def data(*words: object) -> Any:
        return json.loads(run(stored, "--config", config(tmp_path, server.url, "pairwise_judge"), *words).stdout)

    with FaultyServer(*says(*['{"winner": "tie"}'] * 6)) as server:
        result = data("--trajectory", "0_2", "--json")
    assert (result["id"], result["answer"]) == ("0_2", "It is 5.")
    assert result["helpful"]["value"] == 0.5


def test_a_judge_that_does_not_answer_is_an_error_with_its_seconds(stored: Path, tmp_path: Path) -> None:
    short = [f"agent_rl.reward.components.helpful.config.{key}=0.2" for key in ("timeout_s", "total_s")]
    result = run(stored, "--config", config(tmp_path, "http://127.0.0.1:1"), "--json", *short)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in json.loads(result.stdout)["helpful"]["error"]


def test_what_is_not_there_is_named(stored: Path, tmp_path: Path) -> None:
    judged = config(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"--trajectory: no trajectory has the id '0_9'. Did you mean"):
        raise run(stored, "--config", judged, "--trajectory", "0_9").exception  # type: ignore[misc]
    Path(judged).write_text("agent_rl: {reward: {correctness: {scorer: math}}}")
    with pytest.raises(ConfigError, match="uses neither a model nor a service"):
        raise run(stored, "--config", judged).exception  # type: ignore[misc]
