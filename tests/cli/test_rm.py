"""The `agent-rl rm eval` command."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm import DataSample
from tests.rewards.judge.server import judging
from tests.support.cli import printed, shown
from tests.support.http_faults import FaultyServer

pytestmark = pytest.mark.slow


def test_a_judge_is_measured(tmp_path: Path) -> None:
    samples = [DataSample(query="q", answers=[f"answer {n % 5}"], scores=[min(n % 5 + 1, 4)]) for n in range(20)]
    write_parquet([sample.to_row("mine", "test", n) for n, sample in enumerate(samples)], tmp_path / "rows.parquet")

    def said(body: dict[str, Any]) -> str:
        return f"<score>{body['messages'][0]['content'].partition('# Answer')[2].split()[1]}</score>"

    with FaultyServer(default=judging(said)) as server:
        words = ["rm", "eval", "m", str(tmp_path / "rows.parquet"), "--endpoint", server.url, "--out", str(tmp_path)]
        report = printed(*words)
        table = shown(*words, "--limit", "5")
    assert (report["accuracy"]["mean"], report["mae"], report["unparsable"]) == (0.2, pytest.approx(0.8), 0)
    assert "spearman" in table
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 5
    for words, problem in (
        ("--discriminative", "a discriminative model needs a server"),
        ("--template=rubric", "--template: .* has only the fields think, scores. Add the field score or preference"),
    ):
        with pytest.raises(ConfigError, match=problem):
            shown("rm", "eval", "m", tmp_path / "rows.parquet", words)


def test_a_reward_component_is_measured_on_pairs(tmp_path: Path) -> None:
    pairs = [{"question": "q", "response_A": "a" * (n + 1), "response_B": "b" * 9, "label": "B>A"} for n in range(10)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"pair_id": str(n), **pair}) + "\n" for n, pair in enumerate(pairs)))
    report = printed("rm", "eval", "rules", file, "--component", '{"target_chars": 100}')
    assert report["accuracy"]["mean"] == pytest.approx(0.85)  # a tie is half right
    assert report["both_orders"] == pytest.approx(0.8)  # a tie is no decision
    with pytest.raises(ConfigError, match="compares the trajectories of a group"):
        shown("rm", "eval", "pairwise_judge", file, "--component", '{"url": "http://127.0.0.1:1", "model": "m"}')
