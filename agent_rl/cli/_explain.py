"""The command `agent-rl reward explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Json, print_json, recipe_names

if TYPE_CHECKING:
    from agent_rl.rewards import Reward
    from agent_rl.settings import AgentRLSettings

__all__ = ["explain", "reward_of"]


def explain(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Folder with config.yaml, or a name that `agent-rl recipes` lists", autocompletion=recipe_names
        ),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="As in training")] = None,
    as_json: Json = False,
) -> None:
    r"""Print the reward of a recipe as one formula, and what it pays for five plain behaviours.

    \b
      agent-rl reward explain recipes/text_world
      agent-rl reward explain gsm8k_calculator algo=dapo agent_rl.reward.efficiency.free_calls=1

    The behaviours are: right at once; right with a call in every turn that the recipe allows but the last; wrong after
    the same work; giving up at once; malformed. A turn has an equal part of half of data.max_response_length; a turn
    and a call take a second each. Nothing is asked for the components that a model, a service or your code measures:
    they stay in the sum by name. A weight that changes has its last value.

    --json: by pattern of data sources (`*`: all others) `formula` and `pays` (for each behaviour `known`, the number,
    and `others`, the weights of components by name).
    """
    from agent_rl.agents.episode.budget import DEFAULT_MAX_TURNS
    from agent_rl.launch.composition import compose
    from agent_rl.rewards.formula import formulas, payments

    config = compose(recipe, overrides or [])
    settings, reward = reward_of(config)
    turns = config.actor_rollout_ref.rollout.multi_turn.max_assistant_turns or DEFAULT_MAX_TURNS
    found = {
        pattern: (formula, payments(reward, pattern, turns, settings.budget))
        for pattern, formula in formulas(reward).items()
    }
    if as_json:
        print_json(
            {
                pattern: {"formula": formula, "pays": {name: pay._asdict() for name, pay in pays.items()}}
                for pattern, (formula, pays) in found.items()
            }
        )
        return
    for pattern, (formula, pays) in found.items():
        print(f"data sources {pattern}\n" * (len(found) > 1) + f"{formula}\n")
        print(*(f"{name:{max(map(len, pays))}}  {pay}" for name, pay in pays.items()), "", sep="\n")


def reward_of(config: Any) -> tuple[AgentRLSettings, Reward]:
    """The settings of a composed configuration, and its reward; a custom reward function is not loaded.

    Raises:
        ConfigError: as `Reward`.
    """
    from agent_rl.rewards import Reward
    from agent_rl.settings import AgentRLSettings

    settings = AgentRLSettings.from_config(config)
    judged = bool(config.reward.custom_reward_function.path)
    return settings, Reward(settings.reward, max_response_tokens=config.data.max_response_length, judged=judged)
