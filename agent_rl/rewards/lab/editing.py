"""Edited copies of a trajectory: text, answer, calls and counts stay consistent.

Tokens are estimated: added text has as many per character as the trajectory's own turns.
"""

from __future__ import annotations

from dataclasses import replace

from agent_rl.trajectory import ToolCall, Trajectory, Turn

__all__ = ["answered", "with_answer", "with_thought", "with_turns"]

_TOKENS_PER_CHARACTER = 0.25


def answered(trajectory: Trajectory) -> bool:
    """Whether there is an answer that can be replaced."""
    return bool(trajectory.turns) and trajectory.answer is not None


def with_answer(trajectory: Trajectory, answer: str) -> Trajectory:
    """A copy with another answer: in the last turn's text, in the call that submitted it, and as `answer`.

    Args:
        trajectory: one that is `answered`.
        answer: replaces its answer.
    """
    old, last = trajectory.answer or "", trajectory.turns[-1]
    head, found, tail = last.text.rpartition(old) if old else (last.text, "", "")
    turn = replace(
        last,
        text=f"{head}{answer}{tail}" if found or not old else f"{last.text}\n{answer}",
        calls=[_renamed(call, old, answer) for call in last.calls],
        results=[replace(result, answer=answer) if result.answer == old else result for result in last.results],
    )
    return replace(_with_last(trajectory, turn), answer=answer)


def with_thought(trajectory: Trajectory, thought: str) -> Trajectory:
    """A copy with `thought` at the begin of the last turn; answer and calls are the same."""
    last = trajectory.turns[-1]
    return _with_last(trajectory, replace(last, text=f"{thought}\n{last.text}"))


def with_turns(trajectory: Trajectory, turns: list[Turn]) -> Trajectory:
    """A copy with other turns, which include all of the old ones."""
    more = sum(turn.tokens + _tokens(trajectory, turn.observation or "") for turn in turns)
    fewer = sum(turn.tokens + _tokens(trajectory, turn.observation or "") for turn in trajectory.turns)
    return replace(
        trajectory,
        turns=turns,
        response_tokens=trajectory.response_tokens + max(0, more - fewer),
        seconds=trajectory.seconds + _seconds(turns) - _seconds(trajectory.turns),
    )


def _with_last(trajectory: Trajectory, last: Turn) -> Trajectory:
    longer = len(last.text) - len(trajectory.turns[-1].text)
    tokens = max(-last.tokens, round(longer * _rate(trajectory)))
    return replace(
        trajectory,
        turns=[*trajectory.turns[:-1], replace(last, tokens=last.tokens + tokens)],
        response_tokens=max(0, trajectory.response_tokens + tokens),
    )


def _renamed(call: ToolCall, old: str, new: str) -> ToolCall:
    arguments = {key: new if value == old else value for key, value in call.arguments.items()}
    return replace(call, arguments=arguments)


def _tokens(trajectory: Trajectory, text: str) -> int:
    return round(len(text) * _rate(trajectory))


def _rate(trajectory: Trajectory) -> float:
    """Sampled tokens per character."""
    characters = sum(len(turn.text) for turn in trajectory.turns)
    tokens = sum(turn.tokens for turn in trajectory.turns)
    return tokens / characters if characters and tokens else _TOKENS_PER_CHARACTER


def _seconds(turns: list[Turn]) -> float:
    return sum(turn.generation_seconds + turn.tool_seconds for turn in turns)
