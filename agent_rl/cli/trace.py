"""The command `agent-rl trace export`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Json, print_json
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.trajectory import Trajectory

__all__ = ["GROUP", "app"]

GROUP = "look"

app = typer.Typer(help="Traces for other programs.", no_args_is_help=True, add_completion=False)

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class ExportFormat(str, Enum):
    """What a trace can be exported as."""

    ATIF = "atif"
    JSONL = "jsonl"
    CSV = "csv"
    SFT = "sft"
    OTEL = "otel"


_NAMES = {
    ExportFormat.ATIF: "atif",
    ExportFormat.JSONL: "records.jsonl",
    ExportFormat.CSV: "csv",
    ExportFormat.SFT: "sft.parquet",
}


@app.callback()
def _trace() -> None: ...


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A trace, or the folder of a run or an evaluation")],
    form: Annotated[ExportFormat, typer.Option("--format", help="What is written")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File, or folder of ATIF; default: beside the trace")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Only of this split; sft takes train unless another is named, or 'all'")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step")] = None,
    min_reward: Annotated[float | None, typer.Option(help="Only with at least this reward")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first of them")] = None,
    per_prompt: Annotated[int | None, typer.Option(min=1, help="sft: at most this many of a prompt, the best")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="otel: collector, http://host:4318; default: OTEL_EXPORTER_OTLP_ENDPOINT")
    ] = None,
    as_json: Json = False,
) -> None:
    r"""Write the trajectories of a trace for other programs.

    \b
      agent-rl trace export outputs/my_run --format jsonl
      agent-rl trace export outputs/my_run --format sft --min-reward 1 -o my.parquet
      agent-rl trace export outputs/my_run --format otel \
        --endpoint http://localhost:4318

    atif: a folder with one document of ATIF-v1.7 for each trajectory. jsonl and csv: one flat record for each. sft:
    those with the best rewards for supervised fine-tuning, as tokens with the mask of what was sampled. otel:
    OpenTelemetry spans; headers for the collector are taken from OTEL_EXPORTER_OTLP_HEADERS.

    --json: `out`, `trajectories`, and of sft `left_out` (a number for each reason).
    """
    from agent_rl.trajectory.exports.selection import select
    from agent_rl.trajectory.trace.files import trace_of

    options_of_one = (("--per-prompt", per_prompt, ExportFormat.SFT), ("--endpoint", endpoint, ExportFormat.OTEL))
    for name, value, other in options_of_one:
        if value and other is not form:
            problem = f"{form.value} does not have it"
            raise ConfigError(name, problem, f"Leave it out, or name --format {other.value}")
    path = trace_of(source)
    wanted = None if split == "all" else split
    chosen = select(path, split=wanted, step=step, min_reward=min_reward, limit=limit)
    target = out or path.with_name(f"{path.stem}.{_NAMES.get(form, '')}")
    written: dict[str, Any] = {"out": str(target)}
    if form is ExportFormat.OTEL:
        written = _otel(path, chosen, endpoint)
    elif form is ExportFormat.ATIF:
        written["trajectories"] = _atif(path, chosen, target)
    elif form is ExportFormat.SFT:
        options = {"per_prompt": per_prompt, "min_reward": min_reward, "split": wanted if split else "train"}
        written |= _sft(path, select(path, step=step), target, options, limit)
    else:
        written["trajectories"] = _flat(path, chosen, target, form)
    if as_json:
        print_json(written)
        return
    print(f"{written['trajectories']} trajectories: {written['out']}")
    for reason, count in written.get("left_out", {}).items():
        print(f"  left out: {count} ({reason})")


def _flat(path: Path, chosen: Iterable[Trajectory], target: Path, form: ExportFormat) -> int:
    from agent_rl.trajectory import trace
    from agent_rl.trajectory.exports.records import flat_record, write_csv, write_jsonl

    rows: dict[str, list[trace.TrainedRow]] = trace.read_trained_rows(path)
    records = (flat_record(each, rows.get(each.id, ())) for each in chosen)
    write = write_csv if form is ExportFormat.CSV else write_jsonl
    return _replaced(target, lambda file: write(file, records))


def _atif(path: Path, chosen: Iterable[Trajectory], target: Path) -> int:
    from agent_rl.trajectory.exports.atif import to_atif

    model, count = _run(path).get("model"), 0
    target.mkdir(parents=True, exist_ok=True)
    for count, each in enumerate(chosen, 1):
        name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in each.id)[:100]
        (target / f"{count:06d}_{name}.atif.json").write_text(json.dumps(to_atif(each, model)))
    return count


def _sft(
    path: Path, chosen: Iterable[Trajectory], target: Path, options: dict[str, Any], limit: int | None
) -> dict[str, Any]:
    from itertools import islice

    from agent_rl.trajectory.exports.sft import SftChoice, sft_rows, write_sft
    from agent_rl.trajectory.trace import TokenReader, read_trained_rows

    choice = SftChoice(**options, trained=read_trained_rows(path))
    rows = islice(sft_rows(chosen, TokenReader(path).read, choice), limit)
    count = _replaced(target, lambda file: write_sft(file, rows))
    return {"trajectories": count, "left_out": {reason: n for reason, n in choice.left_out.items() if n}}


def _otel(path: Path, chosen: Iterable[Trajectory], endpoint: str | None) -> dict[str, Any]:
    from agent_rl.trajectory.exports.spans import Sender, spans_of

    collector = endpoint or os.environ.get(ENDPOINT)
    if not collector:
        raise ConfigError("--endpoint", "there is no collector to send to", f"Add it, or set {ENDPOINT}")
    run, sender, count = _run(path), Sender(endpoint), 0
    for found in chosen:
        sender.send(spans_of(found, run["name"], run.get("model")))
        count += 1
    sender.send(at_least=1)
    return {"out": collector, "trajectories": count}


def _run(path: Path) -> dict[str, Any]:
    """Name of the run that wrote a trace, and its model if it is known."""
    name, file = path.parent.resolve().name, path.with_name("run.json")
    if not file.is_file():
        return {"name": name}
    config = json.loads(file.read_text())["configuration"]
    return {"name": name, "model": config["actor_rollout_ref"]["model"]["path"]}


def _replaced(target: Path, write: Callable[[Path], int]) -> int:
    """Write a file, which is there whole or not at all; returns what `write` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        result = write(made)
        os.replace(made, target)
    return result
