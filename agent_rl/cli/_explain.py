"""The command `agent-rl reward explain`."""

from __future__ import annotations

from agent_rl.cli._arguments import Json, Overrides, Recipe, print_json

__all__ = ["explain"]


def explain(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    r"""Print the reward of a recipe as one formula, and what it pays for five plain behaviours.

    \b
      agent-rl reward explain recipes/text_world
      agent-rl reward explain gsm8k_calculator algo=dapo agent_rl.reward.efficiency.free_calls=1

    Many calls, and honest work, are a call in every turn that the recipe allows but the last. A turn has an equal part
    of half of data.max_response_length; a turn and a call take a second each. A component that a model, a service or
    your code measures stays in the sum by name. A weight that changes has its last value.

    --json: by pattern of data sources (`*`: all others) `formula`, and `pays`: by behaviour the number, and the weights
    of the components that stay.
    """
    from agent_rl.doctor.case import Case
    from agent_rl.launch.composition import compose
    from agent_rl.rewards.formula import formulas, payments

    case = Case(config=compose(recipe, overrides or []))
    shown, pays = formulas(case.reward), payments(case.reward, case.max_turns, case.settings.budget)
    if as_json:
        print_json({pattern: {"formula": formula, "pays": pays[pattern]} for pattern, formula in shown.items()})
        return
    for pattern, formula in shown.items():
        print(f"data sources {pattern}\n" * (len(shown) > 1) + f"{formula}\n")
        for name, (number, others) in pays[pattern].items():
            print(f"{name:24}", " + ".join([f"{number:.4g}", *(f"{w:g} x {other}" for other, w in others.items())]))
        print()
