"""Problems from one of reasoning-gym's generators: `reasoning_gym:chain_sum`.

The episode has one turn, and the generator's verifier, which runs in the sandbox, determines the reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from agent_rl.data.reasoning_gym import splits, to_row
from agent_rl.environments.environment import Environment
from agent_rl.environments.families import SIZES
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.scorers.reasoning_gym import score_reasoning_gym


class _Problem(Environment):
    """Solve the problem. Your last message is the answer alone, or has it between <answer> and </answer>."""

    id: ClassVar[str]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        for entry in problems(self.id, split, seed):
            yield {"prompt": entry["question"], "entry": entry}

    def reset(self, **row: Any) -> None:
        self.entry = row["entry"]

    async def get_reward(self) -> float:  # type: ignore[override]
        return await score_reasoning_gym(self.answer or "", None, {"entry": self.entry})


def problems(generator: str, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a generator's entries; no question is in both splits."""
    for index, raw in enumerate(splits(generator, seed, SIZES)[split]):
        yield to_row(raw.value, split=split, index=index)["extra_info"]["entry"]


def environment(id: str) -> type[Environment]:
    """Return the environment class for a generator's problems.

    Raises:
        ConfigError: no generator has this name.
    """
    from reasoning_gym.factory import DATASETS

    if id not in DATASETS:
        raise ConfigError(f"reasoning_gym:{id}", f"there is no generator {id!r}", did_you_mean(id, DATASETS))
    return type(f"reasoning_gym:{id}", (_Problem,), {"id": id, "__doc__": _Problem.__doc__})
