"""Every loop that differs from `react_agent` with a real engine: what it does, and that its tokens are exact.

The engine's log-probabilities are those of the conversation as it was sampled, the trainer's those of the training
sequences: a token too many or too few, or one in the wrong place, and they differ.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_rl.agents.code_act import CodeActFormat
from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.format import Format
from agent_rl.agents.folding import FoldingPolicy
from agent_rl.agents.plan_act import PlanActFormat
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.search import SearchFormat
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import ScriptedUser
from agent_rl.data import arithmetic, write_parquet
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.sources import open_source, serve
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import Trajectory, trace
from tests.e2e.taught import Recorder, teach
from tests.e2e.training import diffs, train

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("run_processes")]

ROOT = Path(__file__).parents[2]
AGENTS = ("search_agent", "code_act_agent", "plan_act_agent", "tool_call_agent", "user_sim_agent", "folding_agent")
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*%d"}}\n</tool_call>'
ACT = 'Action: calculator\nAction Input: {"expression": "6*7"}'
SCRIPTS = {
    "search_agent": ("<think>who</think>\n<search>Faust</search>", "<answer>Goethe</answer>"),
    "code_act_agent": ("```python\nx = 6\n```", "```python\nx * 7\n```", "It is \\boxed{42}."),
    "plan_act_agent": (f"Plan:\n1. Multiply.\n2. Answer.\nStep: 1\n{ACT}", "Final Answer: 42"),
    "tool_call_agent": (f"{CALL % 7}\n{CALL % 8}", "It is 42."),
    "user_sim_agent": ("Message: Which?", ACT, "Message: It is 42."),
    "folding_agent": (ACT, ACT, "It was 42.", "Final Answer: 42"),
}
WORDS = {"search": "tags", "code_act": "code", "plan_act": "plan", "user_sim": "talk", "react": "act"}
"""Each loop's instructions: a word by which the model knows what to do; native calls need none."""
USER = {"replies": ["The product."]}
NOTES = "notes"
STEPS = 2


def rows() -> list[dict[str, Any]]:
    """One problem after the other, each for the next loop."""
    problems, _ = arithmetic.train_test(0, len(AGENTS) * STEPS, 1)
    return [
        arithmetic.to_row(each, "train", number, agent_name=AGENTS[number % len(AGENTS)])
        for number, each in enumerate(problems)
    ]


def formats() -> dict[str, Format]:
    return {
        "search_agent": SearchFormat(WORDS["search"]),
        "code_act_agent": CodeActFormat(WORDS["code_act"]),
        "plan_act_agent": PlanActFormat(WORDS["plan_act"]),
        "tool_call_agent": ToolCallFormat(),
        "user_sim_agent": UserSimFormat(WORDS["user_sim"]),
        "folding_agent": ReactFormat(WORDS["react"]),
    }


def conversations(row: dict[str, Any], tools: Path) -> list[list[dict[str, Any]]]:
    """What the model is taught: the script of the row's loop, played over the row."""
    agent = row["agent_name"]
    folds = agent == "folding_agent"
    inner = Recorder(SCRIPTS[agent], max_tokens=16 if folds else None)
    policy = FoldingPolicy(inner, reserve_tokens=4, max_folds=1, instructions=NOTES) if folds else inner
    user = ScriptedUser({}, USER) if agent == "user_sim_agent" else None

    async def episode() -> None:
        async with ToolSession(load_tools(tools), default_timeout_s=60) as session:
            await run_episode(policy, formats()[agent], session, row["prompt"], EpisodeBudget(), user=user)

    asyncio.run(episode())
    assert len(inner.conversations) == 1 + folds
    return inner.conversations


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tools, rows and a model that plays the scripts."""
    folder = tmp_path_factory.mktemp("taught")
    corpus, tools = folder / "corpus.jsonl", folder / "tools.yaml"
    corpus.write_text(json.dumps({"id": "a", "contents": "Faust is a play by Goethe."}) + "\n")
    entries = [{"name": "calculator"}, {"name": "python"}, {"name": "search", "config": {"corpus": str(corpus)}}]
    tools.write_text(json.dumps({"tools": entries}))
    assert teach(folder / "model", [each for row in rows() for each in conversations(row, tools)]) < 0.005
    given = [{**row, "extra_info": {**row["extra_info"], "user": USER}} for row in rows()]
    write_parquet(given, folder / "rows.parquet")
    return folder


SETTINGS = [
    *(f"agent_rl.{loop}.instructions={word}" for loop, word in WORDS.items()),
    f"agent_rl.folding.instructions={NOTES}",
    "agent_rl.folding.reserve_tokens=110",
]


PARALLEL = "multi_turn.max_parallel_calls=2"


@pytest.mark.recipes
def test_loops_train(taught: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        shutil.copy(taught / "rows.parquet", tmp_path / f"{split}.parquet")
    logged = train(
        tmp_path,
        taught / "model",
        f"actor_rollout_ref.rollout.{PARALLEL}",
        *SETTINGS,
        trainer__n_gpus_per_node=2,  # data-parallel ranks: the rows, more than trajectories with folding, are filled up
        data__train_batch_size=len(AGENTS),
        data__max_prompt_length=256,
        data__max_response_length=160,
        actor_rollout_ref__actor__ppo_mini_batch_size=len(AGENTS),
        actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=len(AGENTS),
        actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=len(AGENTS),
        actor_rollout_ref__rollout__multi_turn__tool_config_path=taught / "tools.yaml",
        reward__reward_manager__name="trajectory",
        reward__custom_reward_function__path=Path(__file__).with_name("session_reward.py"),
        agent_rl__user_sim__user="scripted",
        agent_rl__trace__path=tmp_path / "trace.jsonl",
        agent_rl__trace__tokens=True,
    )

    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5
    assert {metrics["agent/unscored"] for metrics in logged.values()} == {0}
    trajectories = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(trajectories) == STEPS * len(AGENTS) * 2
    for step, metrics in logged.items():
        turns = [len(trajectory.turns) for trajectory in trajectories if trajectory.info["step"] == step]
        assert metrics["agent/turns"] == pytest.approx(sum(turns) / len(turns))
    assert {each.agent for each in trajectories if said(each) == SCRIPTS[each.agent]} == set(AGENTS)  # as taught
    check_sequences(tmp_path, trajectories)


def said(trajectory: Trajectory) -> tuple[str, ...]:
    """Turns and notes, in order."""
    found = []
    for turn in trajectory.turns:
        found += [turn.text, *([turn.notes["fold"]["notes"]] if "fold" in turn.notes else [])]
    return tuple(found)


def check_sequences(folder: Path, trajectories: list[Trajectory]) -> None:
    """A folded trajectory is several sequences, all of which have its advantage."""
    rows = trace.read_trained_rows(folder / "trace.jsonl", [each.id for each in trajectories])
    assert len(rows) == len(trajectories)
    for trajectory in trajectories:
        folds = sum("fold" in turn.notes for turn in trajectory.turns)
        value = rows[trajectory.id][0].advantage
        assert abs(value) == pytest.approx(0.5**0.5, abs=1e-3)
        assert [row.advantage for row in rows[trajectory.id]] == [value] * (1 + folds)
        tokens = trace.TokenReader(folder / "trace.jsonl").read(trajectory.id)
        assert tokens is not None
        assert len(tokens["sequences"]) == 1 + folds
    assert sum(map(len, rows.values())) > len(trajectories)


def test_one_transcript_everywhere(taught: Path, tmp_path: Path) -> None:
    """The greedy model over a chat endpoint, over the token endpoint of the same server, and in this process."""

    async def over_http() -> dict[str, list[Any]]:
        async with serve(taught / "model", "served", tmp_path / "server.log") as url:
            words = [f"endpoint={url}", f"tokenizer={taught}/model"]
            found = {}
            for policy in ("chat", "sglang"):
                found[policy] = await evaluated(taught, tmp_path / policy, "served", f"policy={policy}", *words)
            await check_prefixes(url.removesuffix("/v1"))
            return found

    found = asyncio.run(over_http())
    found["local"] = asyncio.run(evaluated(taught, tmp_path / "local", str(taught / "model"), "policy=local"))
    for policy, transcripts in found.items():
        assert [each[0] for each in transcripts] == [SCRIPTS[row["agent_name"]] for row in rows()], policy
        assert transcripts == found["local"], policy


async def check_prefixes(url: str) -> None:
    """A group's prompt is computed once, and so is each turn: only what is new is not in the engine's cache."""
    prompt, new = [7 + number % 50 for number in range(120)], [9, 11, 13]
    async with httpx.AsyncClient(timeout=60) as client:

        async def cached(ids: list[int]) -> tuple[int, list[int]]:
            body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
            answer = (await client.post(f"{url}/generate", json=body)).json()
            return answer["meta_info"]["cached_tokens"], answer["output_ids"]

        first, response = await cached(prompt)
        assert first < len(new)
        group = await asyncio.gather(*(cached(prompt) for _ in range(3)))
        assert [each for each, _ in group] == [len(prompt) - 1] * 3  # the last token is computed for its logits
        turn, _ = await cached([*prompt, *response, *new])
        assert turn >= len(prompt) + len(response) - 1


async def evaluated(taught: Path, folder: Path, model: str, *words: str) -> list[Any]:
    """What was said, shown and concluded for each row."""
    settings = read_settings(
        {"data": f"{taught}/rows.parquet", "tools": f"{taught}/tools.yaml", "model": model},
        ["sampling.temperature=0", "sampling.max_response_tokens=160", PARALLEL, *SETTINGS, *words],
    )
    with Ledger(folder, settings) as ledger:
        async with open_source(settings, folder) as source:
            await run(Evaluation.load(settings), source, ledger, lambda record: None)
    done = {trajectory.info["row"]: trajectory for trajectory in trace.read(folder / "trajectories.jsonl")}
    return [
        (said(t), [turn.observation for turn in t.turns], t.answer, t.stop_reason, t.verdict)
        for _, t in sorted(done.items())
    ]
