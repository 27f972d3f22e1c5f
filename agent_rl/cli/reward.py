"""The `agent-rl reward` commands, which use a reward outside training."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from agent_rl.cli._arguments import Json, Recipe, print_result, recipe_names
from agent_rl.cli._arguments import Overrides as RunOverrides
from agent_rl.cli._reward_inputs import configured, kept_pieces
from agent_rl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from agent_rl.rewards.compose import Reward
    from agent_rl.rewards.lab.mutations import Attack

app = typer.Typer(
    rich_help_panel="reward",
    help="Use a reward outside training: explain it, score trajectories with it, attack it or serve it.",
    no_args_is_help=True,
)

T = TypeVar("T")

Trajectories = Annotated[
    Path, typer.Argument(metavar="TRAJECTORIES", help="JSONL file from agent_rl.trace.path or agent-rl eval")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="agent_rl.reward.* and data.max_response_length, as in training"),
]
Config = Annotated[
    Path | None,
    typer.Option(help="A recipe folder or name, or a YAML file with an agent_rl section", autocompletion=recipe_names),
]
Limit = Annotated[int | None, typer.Option(help="Use only the first N trajectories", min=1)]
Concurrency = Annotated[int, typer.Option(help="Number of trajectories scored concurrently", min=1)]


@app.command()
def explain(recipe: Recipe, overrides: RunOverrides = None, as_json: Json = False) -> None:
    r"""Print a recipe's reward as one formula, and what it pays for five simple behaviors.

    \b
      agent-rl reward explain recipes/text_world
      agent-rl reward explain gsm8k_calculator agent_rl.reward.format.weight=0.1

    "Many calls" and "honest work" are behaviors with a call in every allowed turn except the last. The turns share half
    of data.max_response_length equally; each turn and each call takes one second. A component that is measured by a
    model, a service or your code appears in the sum by name. For a weight with a schedule, the last value is used.

    --json: for each pattern of data sources (`*` means all others), `formula` and `pays` (each behavior's reward, and
    the weights of the components that appear by name).
    """
    from agent_rl.launch.composition import compose
    from agent_rl.preflight.case import RunCase
    from agent_rl.rewards.formula import formulas, payments

    case = RunCase(config=compose(recipe, overrides or []))
    texts, pays = formulas(case.reward), payments(case.reward, case.max_turns, case.settings.budget)
    lines = []
    for pattern, formula in texts.items():
        lines += [*([f"data sources {pattern}"] if len(texts) > 1 else []), formula, ""]
        for name, (number, others) in pays[pattern].items():
            lines.append(
                f"{name:24} " + " + ".join([f"{number:.4g}", *(f"{w:g} x {other}" for other, w in others.items())])
            )
        lines.append("")
    result = {pattern: {"formula": formula, "pays": pays[pattern]} for pattern, formula in texts.items()}
    print_result(result, as_json, *lines)


@app.command()
def score(
    trajectories: Trajectories,
    overrides: Overrides = None,
    config: Config = None,
    out: Annotated[Path | None, typer.Option(help="JSONL file for the trajectories with new scores")] = None,
    concurrency: Concurrency = 32,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    r"""Score stored trajectories with the reward that a configuration describes.

    \b
      agent-rl reward score trajectories.jsonl --config recipes/gsm8k_calculator
      agent-rl reward score trajectories.jsonl agent_rl.reward.format.weight=0

    The trajectories of one prompt are scored together. Unscored trajectories are counted, and are written with their
    error. After an interruption, run the same command again to resume.

    --json: `all` and `data_sources` (each with `scored`, `unscored`, `reward`, `components`), `errors` (counts by
    text).
    """
    from agent_rl.rewards.lab.groups import grouped, read_trajectories, score_groups, summary, summary_table

    stored, reward = read_trajectories(trajectories, limit), configured(config, overrides or [])
    groups = grouped(stored)
    with kept_pieces("groups", len(groups), config, overrides, ["score", trajectories, limit]) as kept:
        scored = asyncio.run(_closed(reward, score_groups(groups, reward, concurrency, kept)))
    after = dict(zip(map(id, chain(*groups)), chain(*scored), strict=True))
    rescored = [after[id(trajectory)] for trajectory in stored]  # in the file's order
    result = summary(rescored)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(f"{trajectory.to_json()}\n" for trajectory in rescored), encoding="utf-8")
    errors = (f"{count} unscored: {error}" for error, count in result["errors"].items())
    print_result(result, as_json, summary_table(result, str(trajectories)), *errors)


@app.command()
def attack(
    trajectories: Trajectories,
    overrides: Overrides = None,
    config: Config = None,
    own: Annotated[
        list[str] | None, typer.Option("--attack", help="Your own attack, file.py:function; may be repeated")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run only this attack; may be repeated")] = None,
    tolerance: Annotated[float, typer.Option(help="Largest gain to ignore, for judges whose scores are noisy")] = 1e-6,
    concurrency: Concurrency = 32,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    r"""Mutate stored trajectories as a reward-hacking policy might, and report the mutations that raise the reward.

    \b
      agent-rl reward attack trajectories.jsonl --config recipes/gsm8k_calculator
      agent-rl reward attack trajectories.jsonl --attack my_attacks.py:flatter

    Exit code 1: an attack raises the reward of a trajectory, or leaves it without a score. After an interruption, run
    the same command again to resume.

    --json: `ok`, `trajectories`, `unscored`, `wrong`, `attacks` (each with `purpose`, `applied`, `raised`,
    `raised_wrong`, `mean_gain`, `max_gain`, `escaped`, `example`).
    """
    from agent_rl.rewards.lab.attack import attack_table, run_attacks
    from agent_rl.rewards.lab.groups import read_trajectories

    stored, reward = read_trajectories(trajectories, limit), configured(config, overrides or [])
    chosen = _attacks(own or [], only or [])
    work = ["attack", trajectories, limit, own, list(chosen), tolerance]
    with kept_pieces("trajectories", len(stored), config, overrides, work) as kept:
        running = run_attacks(stored, reward, chosen, tolerance=tolerance, concurrency=concurrency, kept=kept)
        report = asyncio.run(_closed(reward, running))
    counts = ", ".join(f"{report[name]:,} {name}" for name in ("trajectories", "wrong", "unscored"))
    lines: list[object] = [attack_table(report, f"{trajectories}: {counts}")]
    for name, outcome in report["attacks"].items():
        if (example := outcome["example"]) is not None:
            paid = example["error"] or f"{example['before']:.3f} -> {example['after']:.3f}"
            risen = ", ".join(f"{key} {a:.3f} -> {b:.3f}" for key, (a, b) in example["components"].items())
            lines += [
                f"{name} ({outcome['purpose']}): {example['trajectory']}, {paid}; {risen}",
                f"  {example['answer']!r}",
            ]
    print_result(report, as_json, *lines)
    raise typer.Exit(not report["ok"])


@app.command()
def serve(
    config: Annotated[Path, typer.Option(help="YAML file of the service, such as recipes/reward_api/service.yaml")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings that override the --config file, such as port=9000 or judge.format.weight=0",
        ),
    ] = None,
) -> None:
    r"""Serve rewards over HTTP: POST /get_reward (rules) and /get_reward2 (judge), /health, /metrics, /docs.

    \b
      agent-rl reward serve --config recipes/reward_api/service.yaml
      agent-rl reward serve --config service.yaml port=9000 rules_file=my_rules.py

    The service listens on 127.0.0.1; any other `host` also requires `token_env`. On SIGTERM the service finishes the
    running requests and exits.
    """
    from agent_rl.rewards.service.settings import read_settings

    settings = read_settings(config, overrides or [])
    try:
        from agent_rl.rewards.service import server
    except ModuleNotFoundError as error:
        remedy = "Run pip install 'agent-rl[service]'"
        raise ConfigError("agent-rl reward serve", f"the module {error.name!r} is not installed", remedy) from error
    server.serve(settings, lambda url: print(f"serving rewards at {url}", flush=True))


async def _closed(reward: Reward, work: Awaitable[T]) -> T:
    """Await the work, then close the reward."""
    try:
        return await work
    finally:
        await reward.close()


def _attacks(own: Sequence[str], only: Sequence[str]) -> dict[str, Attack]:
    from agent_rl.rewards.lab.mutations import ATTACKS, from_function
    from agent_rl.settings.errors import Place
    from agent_rl.settings.importing import find_object

    attacks = dict(ATTACKS)
    for path in own:
        attack = from_function(find_object(path, Place("--attack")))
        attacks[attack.name] = attack
    for name in only:
        if name not in attacks:
            raise ConfigError("--only", f"there is no attack {name!r}", did_you_mean(name, attacks))
    return {name: attack for name, attack in attacks.items() if not only or name in only}
