"""The `agent-rl data` commands: `convert`, `show` and `check`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import AgentName, Json, Script, Tools, print_json
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.agents.episode.loop import EpisodeSetup
    from agent_rl.data.check import DataReport

app = typer.Typer(
    rich_help_panel="data", no_args_is_help=True, help="Make rows, show them as the model sees them, and check them."
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parquet, JSON or JSON lines")]
Model = Annotated[str | None, typer.Option(help="Folder or name of a model, to render prompts and count tokens")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting under agent_rl")]


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def convert(context: typer.Context) -> None:
    r"""Convert your own data to rows.

    The input may be CSV, JSON, JSON lines, parquet, or a data set from the Hub.
    The rows are written to train.parquet and test.parquet in the --out folder.

    \b
      agent-rl data convert mine.jsonl --prompt question --answer answer --out rows
      agent-rl data convert --hub openai/gsm8k --prompt question --answer answer

    `agent-rl data convert --help` lists all options.
    """
    from agent_rl.data.conversion import run
    from agent_rl.data.from_file import FROM_FILE

    words = context.args
    files = ["--input"] if words and not words[0].startswith("-") else []
    description = inspect.cleandoc(str(convert.__doc__)).replace("\\b\n", "").rpartition("\n\n")[0]
    run(FROM_FILE, description, [*files, *words], "agent-rl data convert")


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="Parquet, JSON or JSON lines")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of rows")] = 1,
    first: Annotated[int, typer.Option("--row", min=0, help="Index of the first row to print, counting from 0")] = 0,
    tools: Tools = None,
    model: Model = None,
    agent: AgentName = "react_agent",
    script: Script = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    r"""Print rows as the model will see them, with instructions, tools and template.

    \b
      agent-rl data show train.parquet -n 3 --tools tool_configs/calculator.yaml
      agent-rl data show train.parquet --model Qwen/Qwen2.5-0.5B-Instruct

    --json: `rows` (each with `place`, `read_as`, `agent`, `columns`, `prompt`, and `tokens` with --model).
    """
    from itertools import islice

    from rich.console import Console
    from rich.markup import escape

    from agent_rl.agents.episode.prompt import render_prompt
    from agent_rl.data.files import iterate_rows

    setup, tokenizer, console = _setup(tools, settings, script), _tokenizer(model), Console(highlight=False)
    numbered = list(islice(iterate_rows(str(file)), first, first + n))
    if not numbered:
        raise ConfigError("--row", f"{file} has no row {first}", "Pass a smaller number; the first row is 0")
    rows = []
    for place, _, row, changes in numbered:
        agent_name = str(row.get("agent_name") or agent)
        columns = {key: value for key, value in row.items() if key not in ("prompt", "images", "videos")}
        entry: dict[str, Any] = {"place": place, "read_as": changes, "agent": agent_name, "columns": columns}
        entry["prompt"] = render_prompt(row, agent_name, setup, tokenizer)
        if tokenizer is not None:
            entry["tokens"] = len(tokenizer.encode(entry["prompt"], add_special_tokens=False))
        rows.append(entry)
    if as_json:
        print_json({"rows": rows})
        return
    for entry in rows:
        console.rule(escape(entry["place"]), align="left")
        for change in entry["read_as"]:
            console.print(f"[yellow]read as[/]: {escape(change)}")
        console.print(escape(json.dumps(entry["columns"], indent=2, ensure_ascii=False, default=repr)), soft_wrap=True)
        characters = f"{len(entry['prompt'])} characters; add --model to apply its chat template and count tokens"
        size = f"{entry['tokens']} tokens" if "tokens" in entry else characters
        console.print(f"[bold]prompt for {escape(entry['agent'])}[/], {size}:")
        console.print(escape(entry["prompt"]), soft_wrap=True)


@app.command()
def check(
    files: Files,
    tools: Tools = None,
    model: Model = None,
    agent: AgentName = "react_agent",
    script: Script = None,
    settings: Set = None,
    sample: Annotated[int, typer.Option(min=0, help="Number of rows whose ground truths are scored")] = 2_000,
    every: Annotated[bool, typer.Option("--all", help="Score the ground truths of all rows")] = False,
    seed: Annotated[int, typer.Option(help="Random seed that chooses the rows for --sample")] = 0,
    fix: Annotated[
        Path | None, typer.Option(help="File for the good rows; bad rows are written to a second file next to it")
    ] = None,
    as_json: Json = False,
) -> None:
    r"""Check data files: format, duplicate rows, ground truths, names and lengths. Exit code 1: rows have errors.

    \b
      agent-rl data check train.parquet test.parquet
      agent-rl data check train.parquet --fix good.parquet

    All files are checked as one data set, so rows shared by a training file and a test file are found. If scoring the
    ground truths is interrupted, the same command resumes it.

    --json: `files` with their row counts, `unit` of lengths, `labels`, `findings` (each with `kind`, `rows`,
    `error`, `examples`), `graded`, and with --fix `fixed` (`good`, `rejected`: row counts by file).
    """
    from rich.console import Console

    from agent_rl.data.check import check_files
    from agent_rl.data.files import iterate_rows
    from agent_rl.launch.doctor.rows import known_rows
    from agent_rl.work.progress import progress
    from agent_rl.work.store import pieces

    paths, places = [str(path) for path in files], [path.resolve() for path in files]
    for path in (path for path, place in zip(paths, places, strict=True) if places.count(place) > 1):
        raise ConfigError(path, "the file was passed twice", "Pass each file once")
    if fix is not None and fix.resolve() in places:
        raise ConfigError("--fix", f"{fix} is one of the files to check", "Choose another file")
    limit = None if every else sample
    known = known_rows(
        _setup(tools, settings, script),
        default_agent=agent,
        tokenizer=_tokenizer(model),
        sample=limit,
        seed=seed,
        kept=lambda total: pieces("truths", total, [files, tools, model, agent, script, settings, limit, seed]),
    )
    with progress("rows") as advance:
        report, drawn = check_files({path: iterate_rows(path) for path in paths}, known, advance)
    report.grade(drawn, known)
    fixed = {} if fix is None else {"fixed": _write_good(report, paths, fix)}
    if as_json:
        print_json({**report.to_dict(), **fixed})
    else:
        console = Console(highlight=False)
        console.print(report.table())
        for finding in report.lines():
            console.print(finding, soft_wrap=True)
        for kind, counts in fixed.get("fixed", {}).items():
            for path, count in counts.items():
                print(f"{count:,} {kind} rows: {path}")
    if report.errors:
        raise typer.Exit(1)


def _setup(tools: str | None, settings: list[str] | None, script: str | None) -> EpisodeSetup:
    from agent_rl.agents.episode.loop import EpisodeSetup
    from agent_rl.agents.registry import load_script
    from agent_rl.cli._reward_inputs import configuration
    from agent_rl.settings import AgentRLSettings
    from agent_rl.tools import load_tools

    if script:
        load_script(script)
    section = AgentRLSettings.from_config(configuration(None, settings or []))
    return EpisodeSetup(section, tools=load_tools(tools) if tools else [])


def _tokenizer(model: str | None) -> Any:
    if model is None:
        return None
    from agent_rl.agents.policies.chat_template import load_tokenizer

    return load_tokenizer(model, "--model")


def _write_good(report: DataReport, paths: list[str], target: Path) -> dict[str, dict[str, int]]:
    from agent_rl.data.check import write_good
    from agent_rl.data.files import iterate_rows
    from agent_rl.data.storage import RowWriter

    rejected = target.with_name(f"{target.stem}.rejected.jsonl")
    with RowWriter(target) as writer:
        write_good(report, {path: iterate_rows(path) for path in paths}, writer.write, rejected)
    bad = len(report.bad)
    return {"good": {str(target): sum(report.rows) - bad}, "rejected": {str(rejected): bad}}
