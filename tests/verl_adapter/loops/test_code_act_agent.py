"""`code_act_agent` as verl's worker runs it, with real code."""

from pathlib import Path

import pytest

pytest.importorskip("verl")

ROOT = Path(__file__).parents[3]
TOOLS = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/python.yaml"
ACT = "I compute.\n```python\nx = 6\nx * 7\n```"
ANSWER = "It is \\boxed{42}."


def test_output_of_the_code_is_not_trained_on(run_loop, tokenizer):
    output, server = run_loop("code_act_agent", ACT + "\n```output\n43\n```", ANSWER, overrides=[TOOLS])
    text = tokenizer.decode(output.response_ids)
    kept = tokenizer.decode(output.response_ids[: output.response_mask.index(0)])
    assert kept.startswith(f"{ACT}\n```output")  # up to the token that completes the stop string
    assert "43" not in text
    shown = "<|im_end|>\n<|im_start|>user\n```output\n42\n```<|im_end|>\n<|im_start|>assistant\n"
    assert text == f"{kept}{shown}{ANSWER}<|im_end|>"
    sampled = [i for i, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    assert tokenizer.decode(sampled) == f"{kept}{ANSWER}<|im_end|>"
    assert output.extra_fields["trajectory"].answer == "42"
    assert len(server.requests) == 2


def test_settings_are_those_of_the_section(run_loop, tokenizer):
    settings = ["+agent_rl.code_act.instructions='Code. {answer}'", "+agent_rl.code_act.answer=text"]
    output, server = run_loop("code_act_agent", "It is 42.", overrides=[TOOLS, *settings])
    prompt = tokenizer.decode(server.requests[0]["ids"])
    assert prompt.startswith("<|im_start|>system\nCode. When you know the answer, write it without a Python block.")
    assert output.extra_fields["trajectory"].answer == "It is 42."
