"""Environments of skyrl-gym whose problems can be generated: `skyrl_gym:gsm8k_multi_turn`.

The problems come from reasoning-gym's generator `gsm_symbolic`, in the form of SkyRL's rows. A subclass can read
SkyRL's rows from a file:

    class GSM8K(environment("gsm8k")):
        data = "gsm8k/train.parquet"

The reward is the sum of the environment's rewards for the agent's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from agent_rl.environments.environment import Environment
from agent_rl.environments.families.reasoning_gym import problems
from agent_rl.errors import ConfigError, did_you_mean

_FORMS = {
    "gsm8k": 'Let\'s think step by step and output the final answer after "####".',
    "gsm8k_multi_turn": 'Let\'s think step by step and output the final answer after "####".',
    "aime": "The last line of your response should be of the form Answer: $Answer.",
}
"""For each environment, the instruction about the form of the answer, as worded in SkyRL's data sets."""


class _SkyRL(Environment):
    """Solve the problem, and write the answer in the form that it asks for."""

    id: ClassVar[str]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        for entry in problems("gsm_symbolic", split, seed):
            truth = {"ground_truth": entry["answer"]}
            question = f"{entry['question']} {_FORMS[self.id]}"
            yield {"prompt": question, "reward_spec": truth, "reward_model": truth, "extra_info": {}}

    def reset(self, **row: Any) -> None:
        import skyrl_gym

        prompt = row.pop("prompt")
        self.world = skyrl_gym.make(self.id, env_config={}, extras=row)
        self.world.init([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
        self.total = 0.0

    def step(self, message: str) -> str | None:
        output = self.world.step(message)
        self.total += output["reward"]
        self.done = output["done"]
        return None if self.done else "\n".join(each["content"] for each in output["observations"])

    def get_reward(self) -> float:
        return self.total


def environment(id: str) -> type[Environment]:
    """Return the class of an environment.

    Raises:
        ConfigError: the environment does not exist, or its problems need a database, a server or a download.
    """
    from skyrl_gym.envs.registration import registry

    if id not in registry:
        raise ConfigError(f"skyrl_gym:{id}", f"skyrl-gym has no environment {id!r}", did_you_mean(id, registry))
    if id not in _FORMS:
        problem = f"the problems of {id!r} need a database, a server or a download"
        raise ConfigError(f"skyrl_gym:{id}", problem, f"Choose one of {', '.join(_FORMS)}")
    return type(f"skyrl_gym:{id}", (_SkyRL,), {"id": id, "__doc__": _SkyRL.__doc__})
