"""The `agent-rl judge try` command."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Json, print_result, recipe_names
from agent_rl.cli._reward_inputs import configured
from agent_rl.errors import AgentRLError, ConfigError, did_you_mean

if TYPE_CHECKING:
    from agent_rl.rewards.component import Component, GroupComponent
    from agent_rl.trajectory import Trajectory

app = typer.Typer(rich_help_panel="reward", help="Try a reward's judges.", no_args_is_help=True)


@app.command("try")
def try_judges(
    trajectories: Annotated[Path, typer.Argument(metavar="TRAJECTORIES", help="JSONL file of a run or evaluation")],
    config: Annotated[str, typer.Option(help="Recipe folder or name, or a YAML file", autocompletion=recipe_names)],
    trajectory: Annotated[
        str | None, typer.Option(help="Id of a trajectory; default: the first with an answer")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides of keys under agent_rl.reward")
    ] = None,
    as_json: Json = False,
) -> None:
    r"""Ask a reward's judges about one stored trajectory, and print their answers.

    \b
      agent-rl judge try outputs/llm_judge/trace.jsonl --config llm_judge
      agent-rl judge try trajectories.jsonl --config llm_judge --trajectory 0_1

    Every component that queries a model or a service is tried, regardless of its gate. A component that compares the
    samples of a prompt receives all the samples. Exit code 1: a component returned no value.

    --json: `id`, `question`, `answer`, `ground_truth`, and for each component `value`, `seconds`, `logged`, `notes`, or
    `error`.
    """
    from agent_rl.rewards.component import Component
    from agent_rl.rewards.lab.groups import grouped, read_trajectories

    stored, reward = read_trajectories(trajectories), configured(Path(config), overrides or [])
    chosen = _chosen(stored, trajectory)
    group = next(group for group in grouped(stored) if chosen in group)
    judges = [component for component in reward.components if type(component).reach is not Component.reach]
    if not judges:
        remedy = "Pass a configuration that has a judge, such as --config llm_judge"
        raise ConfigError("--config", f"the reward of {config} uses neither a model nor a service", remedy)
    answers = asyncio.run(_answers(judges, chosen, group))
    question = next((message.content for message in reversed(chosen.prompt) if message.role == "user"), "")
    about = {"id": chosen.id, "question": question, "answer": chosen.answer, "ground_truth": chosen.ground_truth}
    lines = [f"{name.replace('_', ' '):13} {value}" for name, value in about.items()]
    for name, answer in answers.items():
        lines += ["", name, *(f"  {key:11} {value}" for key, value in answer.items())]
    print_result({**about, **answers}, as_json, *lines)
    if any("error" in answer for answer in answers.values()):
        raise typer.Exit(1)


def _chosen(stored: list[Trajectory], id: str | None) -> Trajectory:
    """Return the trajectory with the given id, or the first trajectory with an answer if the id is None."""
    if id is None:
        return next((item for item in stored if item.answer is not None), stored[0])
    match = next((item for item in stored if item.id == id), None)
    if match is None:
        raise ConfigError("--trajectory", f"no trajectory has the id {id!r}", did_you_mean(id, [t.id for t in stored]))
    return match


async def _answers(
    components: list[Component | GroupComponent], chosen: Trajectory, group: list[Trajectory]
) -> dict[str, dict[str, Any]]:
    """Measure the chosen trajectory with each component."""
    return {component.name: await _answer(component, chosen, group) for component in components}


async def _answer(component: Component | GroupComponent, chosen: Trajectory, group: list[Trajectory]) -> dict[str, Any]:
    from agent_rl.rewards.component import Component, as_value

    begin = time.monotonic()
    try:
        if isinstance(component, Component):
            value = as_value(await component.measure(chosen))
        else:
            value = as_value((await component.measure_group(group))[group.index(chosen)])
    except AgentRLError as error:
        return {"error": str(error), "seconds": round(time.monotonic() - begin, 2)}
    finally:
        await component.close()
    seconds = round(time.monotonic() - begin, 2)
    return {"value": value.value, "seconds": seconds, "logged": dict(value.logged), "notes": dict(value.notes)}
