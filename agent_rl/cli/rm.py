"""The `agent-rl rm eval` command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Endpoint, Json, json_object, print_result
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.evaluation.judges import Judged, JudgeSource
    from agent_rl.reasoning_rm import DataSample

app = typer.Typer(rich_help_panel="reward", help="Measure judges and reward models.", no_args_is_help=True)


@app.command("eval")
def evaluate(
    model: Annotated[
        str, typer.Argument(help="Model name at --endpoint, a model folder, a checkpoint, or a component's kind")
    ],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Rows, or examples with their ground truth")],
    endpoint: Endpoint = None,
    template: Annotated[
        str, typer.Option(help="pointwise, pairwise, your own file.py:Name, or auto (pairwise for pairs)")
    ] = "auto",
    discriminative: Annotated[
        bool, typer.Option("--discriminative", help="Score with a Bradley-Terry model instead of a judge")
    ] = False,
    component: Annotated[
        str | None, typer.Option(help="Configuration, as JSON, of the reward component whose kind is MODEL")
    ] = None,
    engine: Annotated[str, typer.Option(help="Engine of a discriminative model: sglang or vllm")] = "sglang",
    tokenizer: Annotated[str | None, typer.Option(help="Folder of the model's tokenizer; default: MODEL")] = None,
    score: Annotated[
        str, typer.Option(help="Name of the rating to use as a single answer's ground truth")
    ] = "helpfulness",
    body: Annotated[str, typer.Option(help="Additional fields for each request, as JSON")] = '{"temperature": 0}',
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens per reply, reasoning included")] = 2048,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of samples judged concurrently")] = 32,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the endpoint's API key")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N samples of each file")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report.json and verdicts.jsonl")] = None,
    as_json: Json = False,
) -> None:
    r"""Measure how well a judge or a reward model agrees with the ground truth.

    \b
      agent-rl rm eval my-judge judgebench.jsonl --endpoint http://127.0.0.1:8000
      agent-rl rm eval outputs/reasoning_rm_pointwise/checkpoints test.parquet \
        --template recipes/reasoning_rm_pointwise/template.py:HelpfulnessTemplate
      agent-rl rm eval Skywork/Skywork-Reward-V2-Qwen3-4B rewardbench.parquet \
        --endpoint http://127.0.0.1:8000 --discriminative
      agent-rl rm eval my_rules.py:Length judgebench.jsonl --component '{}'

    Files contain rows, or examples of HelpSteer2, UltraFeedback, hh-rlhf, RewardBench and JudgeBench as published. A
    pair is judged in both orders. An unreadable verdict is counted as wrong, and a failed request is not counted.

    --json: `samples`, `failed`, `unparsable`, `accuracy` (`mean`, `low`, `high`, `rows`), `both_orders` (JudgeBench's
    accuracy), `categories`, `mean_of_categories`, `mae`, `pearson`, `spearman`, `position_bias`, `consistent`, `ties`.
    """
    from agent_rl.evaluation.judges import judge_table, read_samples, report_on

    samples = read_samples(files, score=score, limit=limit)
    if template == "auto":
        template = "pairwise" if all(len(sample.answers) == 2 for sample in samples) else "pointwise"
    keys: dict[str, Any] = {"model": model, "api_key_env": api_key_env, "max_concurrent": 2 * concurrency}
    if component is not None:
        make_judge, endpoint = _component(model, json_object("--component", component)), ""
    elif discriminative:
        if endpoint is None:
            raise ConfigError(
                "--endpoint", "a discriminative model needs a server", "Start a server, and pass its address"
            )
        make_judge = _judge({**keys, "engine": engine, "tokenizer": tokenizer or model, "shown": "answer"}, None, {})
    else:
        make_judge = _judge(keys, template, {**json_object("--body", body), "max_tokens": max_tokens})
    judged = asyncio.run(_measured(make_judge, samples, model, endpoint, concurrency))
    report = report_on(judged)
    if out is not None:
        _write(out, report, judged)
    names = ", ".join(Path(file).name for file in files)
    print_result(report, as_json, judge_table(report, f"{model} on {names}"))


def _judge(keys: dict[str, Any], template: str | None, request: dict[str, Any]) -> Callable[[str], JudgeSource]:
    """Return a function that takes an address and makes a judge; without a template, the judge is a classifier."""
    from agent_rl.evaluation.judges import classifier_judge, template_judge
    from agent_rl.reasoning_rm import find_template
    from agent_rl.remote import EndpointConfig
    from agent_rl.rewards.models import ModelConfig
    from agent_rl.settings.errors import validated

    if template is None:
        return lambda url: classifier_judge(validated(ModelConfig, {**keys, "url": url}))
    judge_template = find_template(template, "--template", "score", "preference")
    return lambda url: template_judge(validated(EndpointConfig, {**keys, "url": url}), judge_template, request)


def _component(kind: str, config: dict[str, Any]) -> Callable[[str], JudgeSource]:
    """Return a function that takes an address, which it ignores, and makes a judge from a reward component."""
    from agent_rl.evaluation.judges import component_judge
    from agent_rl.rewards.component import Component, make_component

    component = make_component("component", kind, config, "--component")
    if not isinstance(component, Component):
        raise ConfigError("MODEL", f"{kind} compares the trajectories of a group", "Use a component that does not")
    return lambda _: component_judge(component)


async def _measured(
    make_judge: Callable[[str], JudgeSource],
    samples: Sequence[DataSample],
    model: str,
    endpoint: str | None,
    concurrency: int,
) -> list[Judged]:
    """Collect the model's verdicts from the endpoint, or from a server started for this model."""
    from agent_rl.evaluation.judges import judge_all
    from agent_rl.evaluation.sources import serve
    from agent_rl.verl_adapter.checkpoints import model_folder
    from agent_rl.work.progress import progress

    async with AsyncExitStack() as stack:
        if endpoint is None:
            folder = await asyncio.to_thread(model_folder, model, "MODEL")
            log = Path("outputs/rm_eval") / f"{Path(model).name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            endpoint = await stack.enter_async_context(serve(folder, model, log))
        with progress("samples", len(samples)) as advance:
            return await judge_all(make_judge(endpoint), samples, at_once=concurrency, advance=advance)


def _write(folder: Path, report: dict[str, Any], judged: list[Judged]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    lines = [{"truth": item.sample.truth, "said": item.verdicts, "failed": item.failed} for item in judged]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "verdicts.jsonl").write_text(text, encoding="utf-8")
