"""The certificate of real runs whose advantages are by turn, in both kinds of modes, with LoRA, folding and masks.

The other runs cover GRPO: test_training.py a full fine-tuning in sync mode, test_failing_sessions.py each mode with
failures.
"""

from pathlib import Path

import pytest

from agent_rl.evaluation.run_certificate import certify_run
from tests.e2e.conftest import marked_run
from tests.e2e.training import train

RECIPE = Path(__file__).parents[2] / "recipes/quickstart"

pytestmark = [pytest.mark.engine, pytest.mark.recipes]


@pytest.mark.parametrize(
    ("agent", "groups", "checked"),
    [
        ("react_agent", ("algo=turn", "mode=colocate_async", "tuning=lora"), set()),
        ("folding_agent", ("algo=gigpo", "agent_rl.mask_void=turn"), {"log-probs", "sampling"}),
        ("tool_call_agent", ("algo=rloo", "tuning=lora", "agent_rl.mask_overlong=true"), {"log-probs", "sampling"}),
    ],
    ids=["turn", "gigpo", "rloo"],
)
def test_a_real_run_has_no_problem(agent: str, groups: tuple[str, ...], checked: set[str], tmp_path: Path) -> None:
    with marked_run():
        logged = train(
            tmp_path,
            RECIPE / "model",
            *groups,
            agent=agent,
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            agent_rl__folding__reserve_tokens=32,
            agent_rl__trace__path=tmp_path / "trace.jsonl",
            agent_rl__trace__tokens=True,
        )
    assert sorted(logged) == [1, 2]
    lines = {line.check: line for line in certify_run(tmp_path)}
    assert {name: line.problems for name, line in lines.items() if line.status == "problem"} == {}
    sound = {name for name, line in lines.items() if line.status == "ok"}
    assert sound >= {"tokens", "masks", "rewards", "advantages", "estimator", "dropped", "reward"} | checked
