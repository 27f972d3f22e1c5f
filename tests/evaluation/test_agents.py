"""Every kind of agent over a chat endpoint: what they do there is what they do in training."""

import asyncio
import json

import pytest

from agent_rl import trace
from agent_rl.agents.plan_act import plans
from agent_rl.data import make_row, write_parquet
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.policies.chat import ChatEndpoint
from agent_rl.trajectory import StopReason
from tests.openai_server import MODEL, Server, words

ACT = 'Action: calculator\nAction Input: {"expression": "6*7"}'
PLAN = f"Plan:\n1. Multiply.\n{ACT}"
ANSWER = "Final Answer: 42"
SCRIPTS = {
    "search_agent": ["<search>Faust</search>\n<information>invented</information>", "<answer>42</answer>"],
    "plan_act_agent": [PLAN, ANSWER],
    "user_sim_agent": ["Message: Which?", ACT, "Message: 42"],
    "code_act_agent": ["```python\nx = 6\n```", "```python\nx * 7\n```", "\\boxed{42}"],
    "folding_agent": [ACT, ACT, ACT, "a note", ANSWER],
}
ASKED = "Write notes."
NO_PLAN = "no plan"
"""A question to which the model answers without one."""


class Scripted(Server):
    """Knows the agent by the system message, which is its name, and writes on after the end of a turn."""

    def answer(self, content):
        if not content:
            return super().answer(content)
        body = json.loads(content)
        self.requests.append(body)
        system, question = (message["content"] for message in body["messages"][:2])
        script = SCRIPTS[system]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if "Your notes so far" in question:
            turn = len(script) - 1
        elif body["messages"][-1]["content"] == ASKED:
            turn = len(script) - 2
        text = ANSWER if question == NO_PLAN else script[turn]
        prompt, sampled = words(body["messages"]), words([{"content": text}])
        return {
            "choices": [
                {
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "length" if "invented" in text else "stop",
                }
            ],
            "usage": {"prompt_tokens": prompt, "completion_tokens": sampled},
        }


@pytest.fixture
def evaluated(tmp_path):
    """Runs an episode of each agent; trajectories by question and agent, and the server."""
    rows = [
        make_row(
            question=NO_PLAN if number == 1 else f"What is 6*7? ({number})",
            data_source="gsm8k_test",
            ground_truth=42,
            split="test",
            index=number,
            agent_name=agent,
            extra_info={"user": {"replies": ["The product."]}},
        )
        for number, agent in enumerate([*SCRIPTS, "plan_act_agent"])
    ]
    write_parquet(rows, tmp_path / "rows.parquet")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "a", "contents": "Faust is a play."}) + "\n")
    entries = [{"name": "calculator"}, {"name": "python"}, {"name": "search", "config": {"corpus": str(corpus)}}]
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": entries}))
    given = read_settings(
        {"data": str(tmp_path / "rows.parquet"), "tools": str(tmp_path / "tools.yaml"), "model": MODEL},
        [
            *(f"agent_rl.{agent.removesuffix('_agent')}.instructions={agent}" for agent in list(SCRIPTS)[:4]),
            "agent_rl.react.instructions=folding_agent",
            f"agent_rl.folding.instructions='{ASKED}'",
            "agent_rl.folding.reserve_tokens=10",
            "agent_rl.budget.max_malformed=1",
            "sampling.max_response_tokens=25",
        ],
    )

    async def all_of_it():
        async with Scripted() as server, ChatEndpoint(server.url, MODEL, given.sampling, timeout_s=5) as source:
            with Ledger(tmp_path / "out", given) as ledger:
                await run(Evaluation.load(given), source, ledger, lambda record: None)
        return server

    server = asyncio.run(all_of_it())
    done = {t.info["row"]: t for t in trace.read(tmp_path / "out/trajectories.jsonl")}
    return [done[number] for number in range(len(rows))], server


def test_all_agents_do_over_an_endpoint_what_they_do_in_training(evaluated):
    (search, no_plan, talk, code, folded, plan), server = evaluated
    assert {t.stop_reason for t in (search, talk, code, folded, plan)} == {StopReason.ANSWERED}
    assert {t.answer for t in (search, talk, folded, plan)} == {"42"}
    assert {t.score.components["correctness"] for t in (search, talk, code, folded, plan)} == {1.0}
    assert [turn.text for turn in search.turns] == ["<search>Faust</search>", "<answer>42</answer>"]
    assert "Faust is a play." in search.turns[0].observation
    assert talk.turns[0].observation == "The product."
    assert code.turns[1].observation == "```output\n42\n```"
    assert no_plan.stop_reason is StopReason.MALFORMED
    assert plans(plan) == [["Multiply."]]
    (fold,) = [turn.notes["fold"] for turn in folded.turns if turn.notes]
    assert fold["notes"] == "a note"
    told = [request["messages"][1]["content"] for request in server.requests if len(request["messages"]) == 2]
    (goes_on,) = [text for text in told if "Your notes so far:\na note\n" in text]
    assert goes_on.endswith("Observation: 42")
