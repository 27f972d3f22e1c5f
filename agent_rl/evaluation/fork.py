"""Forks: episodes that continue a stored trajectory from one of its turns, and Monte Carlo values of such turns.

A fork is an evaluation whose rows are turns: each episode restores the trajectory up to the turn
(`agent_rl.agents.episode.recording`), and then the policy continues with a new turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.loop import EpisodeLoop
from agent_rl.agents.episode.recording import Recording
from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError
from agent_rl.evaluation.ledger import Record
from agent_rl.evaluation.runner import Evaluation
from agent_rl.trajectory import trace
from agent_rl.trajectory.estimates import estimate_mean
from agent_rl.trajectory.exports.records import select


@dataclass(frozen=True)
class ForkEvaluation(Evaluation):
    """An evaluation whose rows are turns of recorded trajectories, with one recording for each row."""

    recordings: Sequence[Recording] = ()

    @classmethod
    def of(cls, base: Evaluation, recordings: Sequence[Recording]) -> ForkEvaluation:
        """Turn an evaluation into a fork; `write_rows` must have written the evaluation's rows.

        Raises:
            ConfigError: a setting cannot be used, or a recording cannot be restored.
        """
        if base.settings.policy == "chat":
            problem = "a chat endpoint renders the conversation again, so it cannot continue from the recorded tokens"
            raise ConfigError("policy", problem, "Use policy=sglang, vllm or local")
        for recording, row in zip(recordings, base.rows, strict=True):
            recording.require_repeatable(base.specs)
            agent = base.agent(row)
            loop = type(base.loop(agent))
            if (loop.run_row, loop.converse) != (EpisodeLoop.run_row, EpisodeLoop.converse):
                problem = f"{agent!r} runs its episodes with its own code, whose state cannot be restored"
                raise ConfigError(recording.name, problem, "Choose another agent's trajectory")
        return cls(base.settings, base.rows, base.specs, base.reward, recordings)

    def loop(self, agent: str, tokenizer: Any = None) -> EpisodeLoop:
        """Return an agent's loop for one episode; the loop restores the recording for the episode's row."""
        loop = super().loop(agent, tokenizer)
        loop.recordings = self.recordings
        return loop


def recordings_of(path: Path, turns: str, ids: Sequence[str], first: int | None) -> Iterator[Recording]:
    """Yield a recording for each chosen turn of the chosen trajectories in a trace.

    Args:
        path: the trace.
        turns: the number of a turn (from 1), a range such as `2-5`, or `all`.
        ids: ids of the trajectories; an empty list selects the `first` scored trajectories that have tokens.
        first: maximum number of trajectories; None selects all `ids` or, if there are no `ids`, the only trajectory.

    Raises:
        ConfigError: the file is not a trace, the trajectory is ambiguous, or a trajectory or turn does not exist or
            cannot be restored.
    """
    known, reader = {each.id: each for each in select(path)}, trace.TokenReader(path)
    if missing := [id for id in ids if id not in known]:
        raise ConfigError("--id", f"{path} has no trajectory {missing[0]!r}", "`agent-rl view` shows the ids")
    chosen = list(dict.fromkeys(ids)) or [id for id, each in known.items() if each.score and reader.read(id)]
    if not chosen:
        raise ConfigError("TRACE", f"{path} has no scored trajectory with tokens", "Set agent_rl.trace.tokens=true")
    if len(chosen) > 1 and not ids and first is None:
        remedy = f"Choose some with --id, such as --id {chosen[0]}, or the first N with --first N"
        raise ConfigError("--id", f"{path} has {len(chosen):,} trajectories", remedy)
    for trajectory in (known[id] for id in chosen[:first]):
        tokens = reader.read(trajectory.id)
        if tokens is None or not tokens["messages"] or any(own["images"] for own in tokens["sequences"]):
            problem = "the trace does not contain its tokens, or the trajectory has images, videos or audio"
            raise ConfigError(f"trajectory {trajectory.id}", problem, "Choose another trajectory")
        trajectory.info["tokens"] = tokens
        yield from (Recording(trajectory, turn) for turn in _numbers(turns, len(trajectory.turns)))


def _numbers(turns: str, length: int) -> range:
    """Return the numbers of the chosen turns in a trajectory with `length` turns."""
    first, dash, last = (f"1-{length}" if turns == "all" else turns).partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise ConfigError("--turn", f"{turns!r} is not a turn", "Write a number, a range such as 2-5, or all")
    return range(int(first), int(last) + 1)


def write_rows(recordings: Iterable[Recording], path: Path) -> None:
    """Write a fork's rows: for each recording, the original row with its prompt and `extra_info.fork`."""
    rows = []
    for recording in recordings:
        own = recording.trajectory
        prompt = [{"role": message.role, "content": message.content} for message in own.prompt]
        info = {**own.extra_info, "fork": {"id": own.id, "turn": recording.turn}}
        rows.append({**own.row, "agent_name": own.agent, "prompt": prompt, "extra_info": info})
    write_parquet(rows, path)


def values(recordings: Sequence[Recording], records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return each trajectory's turns with their values, as JSON data.

    A turn's `value` is the mean reward of the episodes forked at this turn. A turn's `difference` is the next turn's
    value (for the last turn, the trajectory's reward) minus its own value, or None if either of the two is unknown.
    """
    rewards: list[list[list[float]]] = [[] for _ in recordings]
    for record in records:
        if record.error is None:
            rewards[record.row].append([record.reward])
    trajectories = []
    for _, group in groupby(zip(recordings, rewards, strict=True), key=lambda pair: pair[0].name):
        turns = []
        for recording, samples in group:
            calls = [call.name for call in recording.trajectory.turns[recording.turn - 1].calls]
            turns.append({"turn": recording.turn, "calls": calls, **estimate_mean(samples).plain()})
        score = recording.trajectory.score
        following = [turn["mean"] for turn in turns[1:]]
        following.append(score.total if score and recording.turn == len(recording.trajectory.turns) else None)
        for turn, after in zip(turns, following, strict=True):
            turn["value"], turn["episodes"] = turn.pop("mean"), turn.pop("rows")
            turn["difference"] = None if None in (turn["value"], after) else round(after - turn["value"], 6)
        trajectories.append({"id": recording.trajectory.id, "reward": score and score.total, "turns": turns})
    return trajectories
