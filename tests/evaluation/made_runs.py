"""Runs of real agents with the quickstart's taught model, in the form in which training leaves them, and as a dump.

The policy is a transformers model in this process, with its log-probs; the trace, the tokens and the batches are
written by the functions that training uses. The advantages are GRPO's, from its formula.
"""

import asyncio
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agent_rl.agents.policies.local import LocalModel
from agent_rl.agents.policies.source import PolicyUsage, Sampling
from agent_rl.data import arithmetic, write_parquet
from agent_rl.errors import UnscoredError
from agent_rl.evaluation.run_record import StoredSample
from agent_rl.evaluation.runner import Evaluation, columns
from agent_rl.evaluation.settings import read_settings
from agent_rl.launch.composition import compose, resolved
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import LEFT_OUT, Trajectory, trace
from agent_rl.trajectory.trace.batches import append_batch
from agent_rl.verl_adapter.inspection import load_chat_tokenizer

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "recipes/quickstart/model"
LIMIT = 128


@cache
def source(temperature: float = 1.0) -> LocalModel:
    sampling = Sampling(temperature=temperature, max_response_tokens=LIMIT)
    made = LocalModel(str(MODEL), load_chat_tokenizer(str(MODEL)), sampling, dtype="float32", batch=64)
    made.logprobs = True
    return made


def play(
    folder: Path,
    agent: str = "react_agent",
    words: Sequence[str] = (),
    n: int = 4,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[Trajectory]:
    """Play and score `n` episodes of each of four problems."""
    import torch

    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [arithmetic.to_row(problem, "train", i) for i, problem in enumerate(arithmetic.generate(seed, 4))]
    write_parquet(rows, folder / "rows.parquet")
    given = {"model": "-", "data": str(folder / "rows.parquet"), "loop": agent}
    given["tools"] = str(ROOT / "tool_configs/calculator.yaml")
    usual = [
        f"sampling.max_response_tokens={LIMIT}",
        "agent_rl.react.instructions=",
        "agent_rl.reward.format.weight=0.2",
    ]
    evaluation = Evaluation.load(read_settings(given, [*usual, *words]))

    async def episode(policies: LocalModel, row: int, sample: int) -> Trajectory:
        loop = evaluation.loop(agent, policies.tokenizer)
        format = loop.format()
        policy = policies.policy(PolicyUsage(), format=format)
        place = {**columns(evaluation.rows[row], row, sample), "uid": f"u{row}", "global_steps": 1}
        trajectory = await loop.run_row(place, policy, format)
        assert trajectory.error is None
        trajectory.info["tokens"] = policy.record()
        await evaluation.score(trajectory)
        return trajectory

    async def together() -> list[Trajectory]:
        async with source(temperature) as policies:
            return list(
                await asyncio.gather(*(episode(policies, row, sample) for row in range(4) for sample in range(n)))
            )

    return asyncio.run(together())


def unscored(trajectory: Trajectory) -> None:
    """Let its scoring fail."""
    trajectory.score, trajectory.error = None, str(UnscoredError("the judge is away"))


def advantages(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """GRPO's, of the trajectories that can be trained on."""
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for each in trajectories:
        if each.score is not None:
            rewards[each.id.rpartition("_")[0]][each.id] = each.score.total
    found = {}
    for own in rewards.values():
        for id, reward in own.items() if len(own) > 1 else ():
            values = list(own.values())
            found[id] = (reward - statistics.fmean(values)) / (statistics.stdev(values) + 1e-6)
    return found


def stored(folder: Path, trajectories: Sequence[Trajectory], *words: str) -> Path:
    """Write the folder of a run of the quickstart with these overrides."""
    keys = [f"actor_rollout_ref.model.path={MODEL}", f"trainer.default_local_dir={folder}/checkpoints", *words]
    configuration = resolved(compose(ROOT / "recipes/quickstart", keys))
    settings: Any = AgentRLSettings.from_config(configuration)
    names, values = [], []
    of_id = advantages(trajectories)
    for each in trajectories:
        trained = StoredSample(each, [], "kept", 1.0).trained(settings)
        if not any(any(sequence.mask) for sequence in trained):
            each.info[LEFT_OUT] = True
        trace.append(folder / "trace.jsonl", each)
        for number in range(len(trained)) if each.id in of_id else ():
            names.append(f"{each.id}_{number}")
            values.append(of_id[each.id] if any(trained[number].mask) else 0.0)
    append_batch(folder / "trace.jsonl", trace.TrainedBatch(1, 0, names, values))
    (folder / "run.json").write_text(json.dumps({"configuration": configuration}))
    return folder


def dump(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """The lines that another trainer would write: only what the documentation asks for."""
    of_id, lines = advantages(trajectories), []
    for each in trajectories:
        sequences, value, own = each.info["tokens"]["sequences"], of_id.get(each.id), each.score
        row = {"step": 1, "update": 0, "row": 0, "advantage": value}
        line = {
            "version": 1,
            "id": each.id,
            "prompt": [{"role": message.role, "content": message.content} for message in each.prompt],
            "stop_reason": each.stop_reason.value,
            "turns": [{"text": turn.text, "tokens": turn.tokens} for turn in each.turns],
            "score": own and {"total": own.total, "components": own.components, "weights": own.weights},
            "info": {
                "step": 1,
                "tokens": {"messages": [], "tools": [], "sequences": sequences},
                "rows": [] if value is None else [{"sequence": number, **row} for number in range(len(sequences))],
                "sampled_ids": [ids for own in sequences for ids in sampled(own)],
            },
        }
        lines.append(json.loads(json.dumps(line)))
    return lines


def sampled(sequence: dict[str, Any]) -> list[list[int]]:
    """The sampled tokens of each turn."""
    turns: list[list[int]] = []
    before = 0
    for token, mask in zip(sequence["response_ids"], sequence["mask"], strict=True):
        if mask and not before:
            turns.append([])
        if mask:
            turns[-1].append(token)
        before = mask
    return turns


def write(lines: Sequence[dict[str, Any]], path: Path) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
