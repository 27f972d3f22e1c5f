"""The `agent-rl rm eval` command."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm import DataSample
from tests.rewards.judge.server import judging
from tests.support.http_faults import FaultyServer

pytestmark = pytest.mark.slow


def test_a_judge_is_measured(tmp_path: Path) -> None:
    samples = [DataSample(query="q", answers=[f"answer {n % 5}"], scores=[min(n % 5 + 1, 4)]) for n in range(20)]
    write_parquet([sample.to_row("mine", "test", n) for n, sample in enumerate(samples)], tmp_path / "rows.parquet")

    def said(body: dict[str, Any]) -> str:
        return f"<score>{body['messages'][0]['content'].partition('# Answer')[2].split()[1]}</score>"

    with FaultyServer(default=judging(said)) as server:
        words = ["rm", "eval", "m", str(tmp_path / "rows.parquet"), "--endpoint", server.url, "--out", str(tmp_path)]
        done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
        shown = CliRunner().invoke(app, [*words, "--limit", "5"], catch_exceptions=False)
    report = json.loads(done.stdout)
    assert (report["accuracy"]["mean"], report["mae"], report["unparsable"]) == (0.2, pytest.approx(0.8), 0)
    assert "spearman" in shown.stdout
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 5
    for words, problem in (
        ("--discriminative", "a discriminative model needs a server"),
        ("--template=rubric", "--template: .* has only the fields think, scores. Add the field score or preference"),
    ):
        with pytest.raises(ConfigError, match=problem):
            CliRunner().invoke(app, ["rm", "eval", "m", str(tmp_path / "rows.parquet"), words], catch_exceptions=False)
