"""Creates edited copies of a trajectory, and keeps their text, answer, calls and token counts consistent.

Token counts are estimates, which assume that new text has as many tokens per character as the trajectory's turns.
"""

from __future__ import annotations

from dataclasses import replace

from agent_rl.trajectory import ToolCall, Trajectory, Turn

_TOKENS_PER_CHARACTER = 0.25


def answered(trajectory: Trajectory) -> bool:
    """Return whether the trajectory has an answer that can be replaced."""
    return bool(trajectory.turns) and trajectory.answer is not None


def with_answer(trajectory: Trajectory, answer: str) -> Trajectory:
    """Return a copy with another answer, which replaces the old one in the last turn, the submitting call and `answer`.

    Args:
        trajectory: a trajectory for which `answered` is true.
        answer: the new answer.
    """
    old, last = trajectory.answer or "", trajectory.turns[-1]
    head, match, tail = last.text.rpartition(old) if old else (last.text, "", "")
    turn = replace(
        last,
        text=f"{head}{answer}{tail}" if match or not old else f"{last.text}\n{answer}",
        calls=[_with_argument(call, old, answer) for call in last.calls],
        results=[replace(result, answer=answer) if result.answer == old else result for result in last.results],
    )
    return replace(_with_last(trajectory, turn), answer=answer)


def with_thought(trajectory: Trajectory, thought: str) -> Trajectory:
    """Return a copy of a trajectory with `thought` at the start of the last turn, and the same answer and calls."""
    last = trajectory.turns[-1]
    return _with_last(trajectory, replace(last, text=f"{thought}\n{last.text}"))


def with_turns(trajectory: Trajectory, turns: list[Turn]) -> Trajectory:
    """Return a copy of a trajectory with these turns."""
    added = _tokens(turns, _rate(trajectory)) - _tokens(trajectory.turns, _rate(trajectory))
    return replace(
        trajectory,
        turns=turns,
        response_tokens=max(0, trajectory.response_tokens + added),
        seconds=trajectory.seconds + _seconds(turns) - _seconds(trajectory.turns),
    )


def _with_last(trajectory: Trajectory, last: Turn) -> Trajectory:
    longer = len(last.text) - len(trajectory.turns[-1].text)
    tokens = max(-last.tokens, round(longer * _rate(trajectory)))
    return with_turns(trajectory, [*trajectory.turns[:-1], replace(last, tokens=last.tokens + tokens)])


def _with_argument(call: ToolCall, old: str, new: str) -> ToolCall:
    arguments = {key: new if value == old else value for key, value in call.arguments.items()}
    return replace(call, arguments=arguments)


def _tokens(turns: list[Turn], rate: float) -> int:
    return sum(turn.tokens + round(len(turn.observation or "") * rate) for turn in turns)


def _rate(trajectory: Trajectory) -> float:
    """Return the number of sampled tokens per character."""
    characters = sum(len(turn.text) for turn in trajectory.turns)
    tokens = sum(turn.tokens for turn in trajectory.turns)
    return tokens / characters if characters and tokens else _TOKENS_PER_CHARACTER


def _seconds(turns: list[Turn]) -> float:
    return sum(turn.generation_seconds + turn.tool_seconds for turn in turns)
