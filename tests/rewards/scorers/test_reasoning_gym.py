"""The verifier of a reasoning-gym entry; tests/environments/families and tests/data run it in the sandbox."""

import asyncio

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.reasoning_gym import score_reasoning_gym


def test_no_answer_has_no_reward() -> None:
    entry = {"question": "1+1?", "answer": "2", "metadata": {"source_dataset": "chain_sum"}}
    assert asyncio.run(score_reasoning_gym(" ", None, {"entry": entry})) == 0.0


def test_a_row_without_an_entry_is_unscored() -> None:
    with pytest.raises(UnscoredError, match="reasoning-gym entry"):
        asyncio.run(score_reasoning_gym("2", None, {}))
