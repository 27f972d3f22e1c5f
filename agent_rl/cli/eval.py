"""The `agent-rl eval` command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Endpoint, Json, Script, Tools, agent_names, print_result, recipe_names
from agent_rl.errors import AgentRLError, ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from agent_rl.evaluation.ledger import Ledger
    from agent_rl.evaluation.runner import Evaluation

app = typer.Typer(rich_help_panel="train", add_completion=False)


@app.command()
def evaluate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] KEY=VALUE",
            help="A run's folder or a task's file, and settings such as sampling.temperature=0",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model name at --endpoint, model folder or checkpoint; default: the run's newest checkpoint"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe (folder or name) that sets the agent, tools, limits, reward and validation data",
            autocompletion=recipe_names,
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Parquet file of rows, as for training")] = None,
    endpoint: Endpoint = None,
    loop: Annotated[
        str | None,
        typer.Option(
            "--agent", "--loop", help="Name of the agent; default: the agent_name column", autocompletion=agent_names
        ),
    ] = None,
    script: Script = None,
    tools: Tools = None,
    n: Annotated[int | None, typer.Option("-n", help="Episodes per row; default: the recipe's number, or 1")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for this evaluation; default: outputs/eval/<model>_<data>, plus the step for a checkpoint"
        ),
    ] = None,
    difficulty: Annotated[
        Path | None,
        typer.Option("--write-difficulty", help="Write each row, with its share of wrong samples, to this file"),
    ] = None,
    as_json: Json = False,
) -> None:
    r"""Evaluate a model with the agent, tools and reward of a run.

    \b
      agent-rl eval outputs/gsm8k_calculator
      agent-rl eval lockers.py --endpoint http://127.0.0.1:8000 --model NAME
      agent-rl eval --recipe gsm8k_calculator --model Qwen/Qwen2.5-3B-Instruct
      agent-rl eval --data test.parquet --tools tool_configs/calculator.yaml \
        --endpoint http://127.0.0.1:8000 --model Qwen2.5-3B-Instruct -n 4 \
        sampling.temperature=0.7
      agent-rl eval --data test.parquet --tools tool_configs/calculator.yaml \
        --model outputs/my_run/checkpoints/global_step_100

    Run the same command again to resume an interrupted evaluation; to change settings, choose another folder. An
    evaluation's folder contains trajectories.jsonl, summary.json and table.txt.

    --json: the keys of summary.json, `all`, `data_sources`, `unscored` (counts by error), `missing` and `of` (model,
    versions, hashes of weights, data, tools and settings), and `folder`.

    \b
    More settings, as KEY=VALUE:
      policy                    chat (default), sglang, vllm, local
      sampling.*                temperature, top_p, top_k, max_response_tokens
      multi_turn.*              max_assistant_turns, max_parallel_calls, ...
      agent_rl.*                as in training
      size, algo, tuning, ...   one of the recipe's options, as in training
      concurrency, timeout_s    concurrent episodes; seconds per request
      seed, limit               sampling seed; only the first N rows
      api_key_env               environment variable with the API key
      tokenizer                 tokenizer for policies that work on tokens
    """
    from agent_rl.cli._evaluation import opened, run_or_recipe

    flags = {"data": data, "model": model, "endpoint": endpoint, "loop": loop, "script": script, "tools": tools, "n": n}
    flags = {key: value for key, value in flags.items() if value is not None}
    run, recipe, overrides = run_or_recipe(words or [], recipe, has_model=model is not None)
    if run is None and model is None and not any(word.startswith("model=") for word in overrides):
        raise ConfigError("--model", "no model was given", "Pass --model NAME, or a run's folder")
    if not (run or recipe or data) and not any(word.startswith("data=") for word in overrides):
        raise ConfigError("--data", "no rows were given", "Pass --data FILE, or --recipe NAME for its validation data")
    evaluation, ledger = opened(flags, run, recipe, overrides, out)
    with ledger:
        _run(evaluation, ledger, as_json)
        if difficulty is not None:
            from agent_rl.evaluation.summary import write_difficulty

            count = write_difficulty(ledger.read().values(), evaluation.rows, difficulty)
            print(f"wrote {count} rows with their difficulties to {difficulty}")


def _run(evaluation: Evaluation, ledger: Ledger, as_json: bool) -> None:
    """Run the missing episodes and show the summary, even if an episode fails."""
    from agent_rl.cli._evaluation import run_missing

    try:
        asyncio.run(run_missing(evaluation, ledger))
    except KeyboardInterrupt:
        size = len(evaluation.rows) * evaluation.settings.n
        done = size - _summary(evaluation, ledger)["missing"]
        raise KeyboardInterrupt(f"{done:,} of {size:,} episodes are kept in {ledger.folder}") from None
    except AgentRLError:
        _show(evaluation, ledger, as_json)
        raise
    _show(evaluation, ledger, as_json)


def _summary(evaluation: Evaluation, ledger: Ledger) -> dict[str, Any]:
    """Summarize the finished episodes; write the summary and the table if any episode has finished."""
    from rich.console import Console

    from agent_rl.evaluation.summary import summarize

    records = ledger.read().values()
    summary = summarize(records, rows=len(evaluation.rows), n=evaluation.settings.n)
    summary["of"] = ledger.about()
    if records:
        (ledger.folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        with open(ledger.folder / "table.txt", "w") as file:
            Console(file=file, width=120).print(_table(summary, evaluation))
    return summary


def _table(summary: dict[str, Any], evaluation: Evaluation) -> Table:
    from agent_rl.evaluation.summary import table

    settings, rows = evaluation.settings, len(evaluation.rows)
    return table(summary, f"{settings.model} on {Path(settings.data).name}, {rows} rows, {settings.n} episodes each")


def _show(evaluation: Evaluation, ledger: Ledger, as_json: bool) -> None:
    from rich.text import Text

    summary, lines = _summary(evaluation, ledger), list[object]()
    seconds, episodes = summary["all"]["seconds"], summary["all"]["scored"] + summary["all"]["unscored"]
    if episodes:
        lines = [_table(summary, evaluation), f"{seconds / episodes:.2f} s per episode. {ledger.folder}/summary.json"]
        for error, count in summary["unscored"].items():
            lines.append(Text.assemble((f"{count} unscored:", "yellow"), f"  {error}"))
        if summary["missing"]:
            missing = f"{summary['missing']} episodes are missing:"
            lines.append(Text.assemble((missing, "yellow"), " run the same command again to resume"))
    print_result({**summary, "folder": str(ledger.folder)}, as_json, *lines)
