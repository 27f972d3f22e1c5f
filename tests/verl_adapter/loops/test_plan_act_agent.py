"""`plan_act_agent` as verl's worker runs it."""

from pathlib import Path

import pytest

pytest.importorskip("verl")

ROOT = Path(__file__).parents[3]
TOOLS = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/calculator.yaml"
ACT = 'Plan:\n1. Multiply.\nStep: 1\nThought: x\nAction: calculator\nAction Input: {"expression": "6*7"}'
ANSWER = "Thought: done\nFinal Answer: 42"


def test_plan_is_trained_on_and_kept(run_loop, tokenizer):
    output, _ = run_loop("plan_act_agent", ACT, ANSWER, overrides=[TOOLS])
    sampled = [i for i, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    assert tokenizer.decode(sampled) == f"{ACT}<|im_end|>{ANSWER}<|im_end|>"
    assert output.extra_fields["trajectory"].turns[0].notes == {"plan": ["Multiply."], "step": 1}
    assert output.extra_fields["trajectory"].answer == "42"


def test_settings_are_those_of_the_section(run_loop, tokenizer):
    settings = ["+agent_rl.plan_act.instructions='Plan with {tool_names}.'", "+agent_rl.plan_act.observation_role=tool"]
    output, server = run_loop("plan_act_agent", ACT, ANSWER, overrides=[TOOLS, *settings])
    prompt = tokenizer.decode(server.requests[0]["ids"])
    assert prompt.startswith("<|im_start|>system\nPlan with calculator.<|im_end|>")
    assert "<tool_response>\nObservation: 42" in tokenizer.decode(output.response_ids)
