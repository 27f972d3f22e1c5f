"""What holds for every kind of agent inside verl: the audit of its tokens finds nothing."""

import json
from pathlib import Path

import pytest

from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.registry import agent_names
from agent_rl.evaluation.audit import audit_trajectory
from agent_rl.trajectory import StopReason, Trajectory
from tests.agents.episodes import ANSWER, act
from tests.trajectory.trace.waiting import tokens_of

pytestmark = pytest.mark.trainer

CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
SCRIPTS = {
    "react_agent": [act(), "hm", ANSWER],
    "tool_call_agent": [CALL, "It is 42."],
    "search_agent": ["<think>who</think>\n<search>Faust</search>", "hm", "<answer>42</answer>"],
    "code_act_agent": ["```python\nx = 6\n```", "```python\nx * 7\n```", "\\boxed{42}"],
    "plan_act_agent": [f"Plan:\n1. größer 日本\n{act()}", act("1/0"), ANSWER],
    "user_sim_agent": ["Message: Which?", act(), "Message: 42"],
    "folding_agent": [act(), act("1+1"), "It was 42.", ANSWER],
    "gateway_agent": [CALL, "It is 42."],
}


@pytest.mark.parametrize("agent", agent_names())
def test_audit_finds_nothing(run_loop, tokenizer, tmp_path, agent):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "a", "contents": "Faust is a play."}) + "\n")
    entries = [{"name": "calculator"}, {"name": "python"}, {"name": "search", "config": {"corpus": str(corpus)}}]
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": entries}))
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path}/tools.yaml",
        f"+agent_rl.trace.path={tmp_path}/trace.jsonl",
        "+agent_rl.trace.tokens=true",
        "+agent_rl.folding.reserve_tokens=60",
        "+agent_rl.folding.instructions=Notes",
        f"+agent_rl.gateway.function={Path(__file__).parent}/gateway_program.py:run",
        f"data.max_response_length={130 if agent == 'folding_agent' else 512}",
        "data.max_prompt_length=2048",
    ]
    row = {"extra_info": {"user": {"replies": ["The product."]}}}
    output, server = run_loop(agent, *SCRIPTS[agent], overrides=overrides, **row)
    outputs = output if isinstance(output, list) else [output]
    assert len(outputs) == 1 + (agent == "folding_agent")
    assert server.turns == []
    trajectory = Trajectory.from_json(outputs[-1].extra_fields["trajectory"].to_json())
    assert trajectory.stop_reason is StopReason.ANSWERED
    trajectory.info["tokens"] = tokens_of(tmp_path / "trace.jsonl", trajectory.id)
    assert [each["response_ids"] for each in trajectory.info["tokens"]["sequences"]] == [
        each.response_ids for each in outputs
    ]
    audits = audit_trajectory(trajectory, ChatTemplate(tokenizer))
    assert len(audits) == len(SCRIPTS[agent])
    assert [(audit.mask, audit.logprobs, audit.drift, audit.difference) for audit in audits] == [
        (None, None, "none", "")
    ] * len(audits)
