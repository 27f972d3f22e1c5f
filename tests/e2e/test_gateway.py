"""Programs that talk to the policy over HTTP train two real steps; each row names its program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.trajectory import trace
from tests.docs.pages import block
from tests.e2e.training import train

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

PROGRAMS = Path(__file__).parents[1] / "agents/sessions/programs"


def test_rows_with_their_own_programs_train(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(block("docs/guides/any_agent.md", "python", "my_agent.py"))
    programs = [f"{sys.executable} {tmp_path}/my_agent.py", f"sh {PROGRAMS}/curl_agent.sh"]
    for split, seed, count in (("train", 0, 8), ("test", 1, 4)):
        rows = [arithmetic.to_row(problem, split, i) for i, problem in enumerate(arithmetic.generate(seed, count))]
        for number, row in enumerate(rows):
            row["agent_name"] = "gateway_agent"
            row["extra_info"]["program"] = programs[number % 2]
        write_parquet(rows, tmp_path / f"{split}.parquet")
    rewards = {"reward__reward_manager__name": "trajectory", "reward__custom_reward_function__path": "null"}
    metrics = train(tmp_path, tiny_model, data__max_response_length=64, **rewards)
    assert metrics[2]["training/rollout_probs_diff_mean"] < 1e-5
    trajectories = trace.read(tmp_path / "trace.jsonl")
    trained = [each for each in trajectories if each.info["split"] == "train"]
    assert {each.agent for each in trained} == {"gateway_agent"}
    assert not [each.error for each in trained if each.error]
    by_program = {each.extra_info["program"] for each in trained}
    assert by_program == set(programs)
    assert all(each.verdict == 0.5 for each in trained if "curl" in each.extra_info["program"])
    assert all(each.info["gateway"]["conversations"] == 1 for each in trained)
