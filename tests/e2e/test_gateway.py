"""Programs that talk to the policy over HTTP train two real steps; each row names its program."""

from pathlib import Path

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.trajectory import trace
from tests.docs.pages import block
from tests.e2e.training import train
from tests.support.programs import PROGRAMS, PYTHON, needs_programs

pytestmark = [pytest.mark.engine, pytest.mark.recipes, needs_programs]

SCRIPTS = ["langgraph_agent.py", "openai_agents.py", "pydantic_agent.py", "anthropic_agent.py"]


def test_rows_with_their_own_programs_train(tiny_model: Path, tmp_path: Path) -> None:
    """Six programs as they are; the model was never taught, so some of them fail, which is scored."""
    (tmp_path / "my_agent.py").write_text(block("docs/guides/any_agent.md", "python", "my_agent.py"))
    scripts = [tmp_path / "my_agent.py", *(PROGRAMS / name for name in SCRIPTS)]
    programs = [*(f"{PYTHON} {script}" for script in scripts), f"sh {PROGRAMS}/curl_agent.sh"]
    for split, seed, count in (("train", 0, 2 * len(programs)), ("test", 1, len(programs))):
        rows = [arithmetic.to_row(problem, split, i) for i, problem in enumerate(arithmetic.generate(seed, count))]
        for number, row in enumerate(rows):
            row["agent_name"] = "gateway_agent"
            row["extra_info"]["program"] = programs[number % len(programs)]
        write_parquet(rows, tmp_path / f"{split}.parquet")
    settings = {
        "data__train_batch_size": len(programs),
        "data__max_prompt_length": 512,
        "data__max_response_length": 64,
        "actor_rollout_ref__actor__ppo_mini_batch_size": len(programs),
        "reward__reward_manager__name": "trajectory",
        "reward__custom_reward_function__path": "null",
    }
    metrics = train(tmp_path, tiny_model, **settings)
    assert metrics[2]["training/rollout_probs_diff_mean"] < 1e-5
    trained = [each for each in trace.read(tmp_path / "trace.jsonl") if each.info["split"] == "train"]
    assert {each.agent for each in trained} == {"gateway_agent"}
    assert not [each.error for each in trained if each.error]
    for step in (1, 2):
        at_step = [each for each in trained if each.info["step"] == step]
        assert sorted(each.extra_info["program"] for each in at_step) == sorted(2 * programs)
    assert all(each.verdict == 0.5 for each in trained if "curl" in each.extra_info["program"])
    assert all(each.info["gateway"]["conversations"] == 1 for each in trained)
