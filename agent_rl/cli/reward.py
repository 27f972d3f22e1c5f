"""The commands `agent-rl reward score`, `attack`, `what-if` and `serve`, which use the reward outside training."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agent_rl.cli._arguments import Json, agent_names, print_json, recipe_names
from agent_rl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from agent_rl.pieces import Pieces
    from agent_rl.rewards.compose import Reward
    from agent_rl.rewards.lab import Attack
    from agent_rl.settings import AgentRLSettings
    from agent_rl.trajectory import Trajectory

__all__ = ["GROUP", "app"]

GROUP = "reward"

app = typer.Typer(help="Score, attack and serve a reward outside training.", no_args_is_help=True, add_completion=False)

T = TypeVar("T")

Trajectories = Annotated[
    Path, typer.Argument(metavar="TRAJECTORIES", help="JSONL of agent_rl.trace.path, or of agent-rl eval")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="agent_rl.reward.... as in training, and data.max_response_length"),
]
Config = Annotated[
    Path | None,
    typer.Option(help="A recipe's folder or name, or a YAML file with a section agent_rl", autocompletion=recipe_names),
]
Data = Annotated[
    Path | None, typer.Option(help="Parquet file of the rows, for trajectories that were stored without theirs")
]
Limit = Annotated[int | None, typer.Option(help="Only so many of the first trajectories", min=1)]
Concurrency = Annotated[int, typer.Option(help="Trajectories that are scored at one time", min=1)]


@app.command()
def score(
    trajectories: Annotated[
        Path,
        typer.Argument(
            metavar="TRAJECTORIES",
            help="JSONL of agent_rl.trace.path, or of agent-rl eval; or what verl dumps: trainer.rollout_data_dir",
        ),
    ],
    overrides: Overrides = None,
    config: Config = None,
    data: Data = None,
    loop: Annotated[
        str, typer.Option(help="Of a dump: the agent that wrote it", autocompletion=agent_names)
    ] = "react_agent",
    script: Annotated[
        str | None, typer.Option(help="Of a dump: your training script: the agents that it registers count")
    ] = None,
    tools: Annotated[str | None, typer.Option(help="Of a dump: YAML file of the tools that the agent had")] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSONL file for the trajectories with their new scores; of a dump the summary")
    ] = None,
    concurrency: Concurrency = 32,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    r"""Score stored trajectories, or verl's dumps, by the reward that a configuration describes, offline.

    \b
      agent-rl reward score trajectories.jsonl --config recipes/gsm8k_calculator
      agent-rl reward score trajectories.jsonl agent_rl.reward.efficiency.penalty=0.2 --out scored.jsonl
      agent-rl reward score outputs/my_run/rollouts --tools tool_configs/calculator.yaml

    The trajectories of one prompt are scored together. An unscored one is counted, and kept with its error. For
    verl's dumps, scores are shown for each step. The same command goes on after an interruption.

    --json: `all` and `data_sources` (each with `scored`, `unscored`, `reward`, `components`), `errors` (numbers by
    text); of a dump the same for each step.
    """
    from rich.console import Console

    from agent_rl.rewards.lab.groups import grouped, score_groups, summary, summary_table

    if _is_dump(trajectories):
        settings = _settings(_given(config, overrides or []))
        shown, result = _dump_scores(trajectories, settings, loop, script, tools)
        written = json.dumps(result, indent=2) + "\n"
    else:
        found, reward = _read(trajectories, limit, data), _reward(config, overrides or [])
        groups = grouped(found)
        with _pieces("groups", len(groups), "score", trajectories, limit, data, config, overrides) as kept:
            scored = asyncio.run(_closed(reward, score_groups(groups, reward, concurrency, kept)))
        after = dict(zip(map(id, chain(*groups)), chain(*scored), strict=True))
        in_order = [after[id(trajectory)] for trajectory in found]  # of the file
        result = summary(in_order)
        shown, written = (
            summary_table(result, str(trajectories)),
            "".join(f"{trajectory.to_json()}\n" for trajectory in in_order),
        )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(written, encoding="utf-8")
    if as_json:
        print_json(result)
        return
    console = Console()
    console.print(shown)
    for error, count in result.get("errors", {}).items():
        console.print(f"{count} unscored: {error}", markup=False, highlight=False)


@app.command()
def attack(
    trajectories: Trajectories,
    overrides: Overrides = None,
    config: Config = None,
    data: Data = None,
    own: Annotated[
        list[str] | None, typer.Option("--attack", help="One of your own, file.py:function; may be repeated")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this attack; may be repeated")] = None,
    tolerance: Annotated[float, typer.Option(help="Gain that is not reported, for judges that are not exact")] = 1e-6,
    concurrency: Concurrency = 32,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    r"""Mutate stored trajectories as a reward-hacking policy might, and report the mutations that raise the reward.

    \b
      agent-rl reward attack trajectories.jsonl --config recipes/gsm8k_calculator
      agent-rl reward attack trajectories.jsonl --attack my_attacks.py:flatter --only flatter

    Exit code 1 when an attack raises the reward of a trajectory, or makes it unscored. The same command goes on
    after an interruption.

    --json: `ok`, `trajectories`, `unscored`, `wrong`, `attacks` (each with `purpose`, `applied`, `raised`,
    `raised_wrong`, `mean_gain`, `max_gain`, `escaped`, `example`).
    """
    from rich.console import Console

    from agent_rl.rewards.lab.attack import attack_table, example, run_attacks

    found, reward = _read(trajectories, limit, data), _reward(config, overrides or [])
    chosen = _attacks(own or [], only or [])
    work = ("attack", trajectories, limit, data, config, overrides, own, list(chosen), tolerance)
    with _pieces("trajectories", len(found), *work) as kept:
        made = run_attacks(found, reward, chosen, tolerance=tolerance, concurrency=concurrency, kept=kept)
        report = asyncio.run(_closed(reward, made))
    if as_json:
        print_json(report.to_dict())
        raise typer.Exit(not report.ok)
    console = Console()
    counts = f"{report.trajectories:,} trajectories, {report.wrong:,} wrong, {report.unscored:,} unscored"
    console.print(attack_table(report, f"{trajectories}: {counts}"))
    for name, outcome in report.outcomes.items():
        finding = example(outcome)
        if finding is not None:
            paid = finding.error or f"{finding.before:.3f} -> {finding.after:.3f}"
            risen = ", ".join(f"{key} {a:.3f} -> {b:.3f}" for key, (a, b) in finding.components.items())
            text = f"{name} ({report.purposes[name]}): {finding.trajectory}, {paid}; {risen}\n  {finding.answer!r}"
            console.print(text, markup=False, highlight=False)
    raise typer.Exit(not report.ok)


@app.command("what-if")
def what_if(
    trajectories: Trajectories,
    overrides: Overrides = None,
    config: Config = None,
    data: Data = None,
    remeasure: Annotated[
        bool, typer.Option(help="Measure every component again, in place of the stored values")
    ] = False,
    metric: Annotated[str, typer.Option(help="algorithm.filter_groups.metric: reward, acc, or a component")] = "reward",
    concurrency: Concurrency = 32,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    r"""Recompute the rewards of stored groups with other weights, and report how their advantages change.

    \b
      agent-rl reward what-if trajectories.jsonl agent_rl.reward.efficiency.weight=2
      agent-rl reward what-if trajectories.jsonl --config recipes/gsm8k_calculator --remeasure

    It reports advantages that change their sign, groups without variance, and groups that algorithm.filter_groups
    drops. Of pairs, the first is before and the second after.

    --json: `trajectories`, `unscored`, `groups`, `compared`, `before` and `after` (each with `without_variance`,
    `filtered`), `flips` (each with `trajectory`, `data_source`, `reward`, `advantage`), `gained`, `lost`, `reward`,
    `components`.
    """
    from rich.console import Console

    from agent_rl.rewards.lab.groups import grouped, score_groups
    from agent_rl.rewards.lab.what_if import reweighed, what_if, what_if_table

    groups, reward = grouped(_read(trajectories, limit, data)), _reward(config, overrides or [])
    with _pieces("groups", len(groups), "what-if", trajectories, limit, data, config, overrides, remeasure) as kept:
        measured = score_groups(groups, reward, concurrency, kept) if remeasure else None
        after = asyncio.run(_closed(reward, measured or reweighed(groups, reward.reweigh)))
    report = what_if(groups, after, metric)
    if as_json:
        print_json(report.to_dict())
        return
    console = Console()
    console.print(what_if_table(report, str(trajectories)))
    for flip in report.flips[:5]:
        (was, would_be), (a, b) = flip.reward, flip.advantage
        text = f"{flip.trajectory}: reward {was:.3f} -> {would_be:.3f}, advantage {a:+.2f} -> {b:+.2f}"
        console.print(text, markup=False, highlight=False)


@app.command()
def serve(
    config: Annotated[Path, typer.Option(help="YAML file of the service, for example recipes/reward_api/service.yaml")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its keys: port=9000, judge.format.weight=0, ...")
    ] = None,
) -> None:
    r"""Serve rewards over HTTP: POST /get_reward (rules) and /get_reward2 (judge), /health, /metrics, /docs.

    \b
      agent-rl reward serve --config recipes/reward_api/service.yaml
      agent-rl reward serve --config service.yaml port=9000 rules_file=my_rules.py

    It listens on 127.0.0.1; another `host` needs `token_env`. On SIGTERM it finishes the running requests and ends.
    """
    from agent_rl.rewards.service.settings import read_settings

    settings = read_settings(config, overrides or [])
    try:
        from agent_rl.rewards.service import server
    except ModuleNotFoundError as error:
        remedy = "Install what the service needs: pip install 'agent-rl[service]'"
        raise ConfigError("agent-rl reward serve", f"there is no module {error.name!r}", remedy) from error
    server.serve(settings, lambda url: print(f"serving rewards at {url}", flush=True))


def _pieces(what: str, total: int, *work: Any) -> AbstractContextManager[Pieces]:
    """The pieces of a command: the same for equal arguments, configurations, and files that these name."""
    from omegaconf import OmegaConf

    from agent_rl.pieces import pieces

    config, overrides = work[4], work[5] or []
    return pieces(what, total, [*work, OmegaConf.to_container(_given(config, overrides))])


def _reward(config: Path | None, overrides: Sequence[str]) -> Reward:
    """The reward of a configuration with overrides.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    from omegaconf import OmegaConf

    from agent_rl.rewards.custom import configured_reward
    from agent_rl.rewards.user_function import CUSTOM_FUNCTION

    given = _given(config, overrides)
    limit: Any = OmegaConf.select(given, "data.max_response_length")
    limit = None if limit is None else int(limit)
    custom = OmegaConf.select(given, CUSTOM_FUNCTION)
    function: Any = None if custom is None else OmegaConf.to_container(custom)
    return configured_reward(_settings(given).reward, function, max_response_tokens=limit)


def _read(path: Path, limit: int | None, data: Path | None) -> list[Trajectory]:
    """The trajectories of a file; those without a row get the one of `data` with their data source and index."""
    from agent_rl.data import read_parquet
    from agent_rl.rewards.lab.groups import read_trajectories
    from agent_rl.trajectory import row_data

    found = read_trajectories(path, limit)
    rows = [] if data is None else read_parquet(str(data))
    by_index = {(str(row["data_source"]), (row.get("extra_info") or {}).get("index")): row for row in rows}
    for trajectory in found:
        if row := by_index.get((trajectory.data_source, trajectory.info.get("index"))):
            trajectory.row = row_data(row)
    return found


def _settings(given: Any) -> AgentRLSettings:
    from agent_rl.settings import AgentRLSettings

    return AgentRLSettings.from_config(given)


def _is_dump(path: Path) -> bool:
    """Whether this is a dump of verl: a folder with a file for each step, or one of its files."""
    if not path.is_file():
        return path.is_dir()
    with open(path, "rb") as lines:
        first = next(lines, b"")
    return b'"input"' in first and b'"stop_reason"' not in first


def _dump_scores(
    dump: Path, settings: AgentRLSettings, loop: str, script: str | None, tools: str | None
) -> tuple[Any, dict[str, Any]]:
    """The table and the summary of each step of a dump."""
    from agent_rl.agents.episode.loop import EpisodeSetup
    from agent_rl.agents.registry import load_script, make_loop
    from agent_rl.evaluation.dumps import read_dump, score_dump, step_table
    from agent_rl.verl_adapter.tool_files import load_specs

    if script:
        load_script(script)
    specs = load_specs(tools) if tools else []
    format = make_loop(loop, EpisodeSetup(settings, tools=specs)).format()
    steps = asyncio.run(score_dump(read_dump(dump), format, specs, settings.reward))
    return step_table(steps, str(dump))


async def _closed(reward: Reward, work: Awaitable[T]) -> T:
    """The result of the work; the reward is closed afterwards."""
    try:
        return await work
    finally:
        await reward.close()


def _given(config: Path | None, overrides: Sequence[str]) -> Any:
    """The configuration: a recipe is composed as in training, another file is only loaded."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from agent_rl.settings.yaml_files import yaml_errors

    for word in overrides:
        if "=" not in word or not word.startswith(("agent_rl.", "data.max_response_length=")):
            raise ConfigError(word, "not a setting of the reward", "Write agent_rl.reward.<key>=<value>")
    is_recipe = config is not None and (config.is_dir() or not config.suffix)  # a folder, or a recipe's name
    try:
        written: Any = OmegaConf.create({})
        if config is not None and not is_recipe:
            with yaml_errors(config):
                written = OmegaConf.load(config)
        if not OmegaConf.is_dict(written):
            raise ConfigError("--config", f"{config} has no sections", "Name a YAML file or a recipe's folder")
        if config is not None and (is_recipe or "defaults" in written):
            from agent_rl.launch.composition import compose

            return compose(config if is_recipe else config.parent, overrides)
        words = [f"{word}''" if word.endswith("=") else word for word in overrides]
        merged: Any = OmegaConf.merge(written, OmegaConf.from_dotlist(words))
    except OmegaConfBaseException as error:
        raise ConfigError("--config", str(error).splitlines()[0], "Name a YAML file or a recipe's folder") from error
    return merged


def _attacks(own: Sequence[str], only: Sequence[str]) -> dict[str, Attack]:
    from agent_rl.rewards.lab.mutations import ATTACKS, from_function
    from agent_rl.settings.errors import Place
    from agent_rl.settings.importing import find_object

    attacks = dict(ATTACKS)
    for path in own:
        made = from_function(find_object(path, Place("--attack")))
        attacks[made.name] = made
    for name in only:
        if name not in attacks:
            raise ConfigError("--only", f"there is no attack {name!r}", did_you_mean(name, attacks))
    return {name: made for name, made in attacks.items() if not only or name in only}
