"""Tokens of a trace, which a thread writes after the trajectory has been returned."""

import time
from pathlib import Path

from agent_rl.trajectory.trace import TokenReader
from agent_rl.trajectory.trace.tokens import Tokens

PATIENCE_S = 20


def tokens_of(trace: Path, id: str) -> Tokens:
    """The tokens, once they are written."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := TokenReader(trace).read(id)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found
