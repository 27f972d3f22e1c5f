"""Whether the policy goes round in circles: turns that ask for nothing but what was asked before."""

from __future__ import annotations

from collections.abc import Sequence

from agent_rl.trajectory import ToolCall, call_key

__all__ = ["Repeats"]


class Repeats:
    """The calls of one episode."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.in_a_row = 0
        """Turns in a row that only repeated earlier calls."""

    def add(self, calls: Sequence[ToolCall]) -> None:
        """Note a turn's calls."""
        keys = {call_key(call) for call in calls}
        self.in_a_row = self.in_a_row + 1 if keys <= self._seen else 0
        self._seen |= keys
