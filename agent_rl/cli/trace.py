"""The `agent-rl trace export` command."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.trajectory import Trajectory

app = typer.Typer(rich_help_panel="look", help="Convert traces for other programs.", no_args_is_help=True)


_NAMES = {"atif": "atif", "jsonl": "records.jsonl", "csv": "csv", "sft": "sft.parquet"}
"""The ending of the output file's name for each format."""


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A trace, or the folder of a run or an evaluation")],
    form: Annotated[Literal["atif", "jsonl", "csv", "sft"], typer.Option("--format", help="Output format")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Output file, or a folder for atif; default: next to the trace")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Export only this split; 'all' means every split; default: all (sft: train)")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Export only this training step")] = None,
    min_reward: Annotated[float | None, typer.Option(help="Export only trajectories with at least this reward")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N trajectories")] = None,
    per_prompt: Annotated[int | None, typer.Option(min=1, help="sft: the best N trajectories per prompt")] = None,
    as_json: Json = False,
) -> None:
    r"""Convert the trajectories of a trace for other programs.

    \b
      agent-rl trace export outputs/my_run --format jsonl
      agent-rl trace export outputs/my_run --format sft --min-reward 1 -o my.parquet

    atif: a folder with one ATIF-v1.7 document per trajectory. jsonl and csv: one flat record per trajectory. sft: the
    trajectories with the best rewards for supervised fine-tuning, as tokens, with a mask of the sampled tokens.

    --json: `out`, `trajectories`, and for sft `left_out` (the number left out for each reason).
    """
    from agent_rl.trajectory.exports.records import select
    from agent_rl.trajectory.trace.files import trace_of

    if per_prompt and form != "sft":
        raise ConfigError(
            "--per-prompt", f"the {form} format does not use this option", "Remove it, or set --format sft"
        )
    path = trace_of(source)
    only_split = None if split == "all" else split
    chosen = select(path, split=only_split, step=step, min_reward=min_reward, limit=limit)
    target = out or path.with_name(f"{path.stem}.{_NAMES[form]}")
    if target.resolve() == path.resolve():
        raise ConfigError("--out", f"{target} is the trace itself", "Choose another file")
    written: dict[str, Any] = {"out": str(target)}
    if form == "atif":
        written["trajectories"] = _atif(path, chosen, target)
    elif form == "sft":
        options = {"per_prompt": per_prompt, "min_reward": min_reward, "split": only_split if split else "train"}
        written |= _sft(path, select(path, step=step), target, options, limit)
    else:
        written["trajectories"] = _flat(path, chosen, target, form)
    left_out = (f"  left out: {count} ({reason})" for reason, count in written.get("left_out", {}).items())
    print_result(written, as_json, f"{written['trajectories']} trajectories: {written['out']}", *left_out)


def _flat(path: Path, chosen: Iterable[Trajectory], target: Path, form: str) -> int:
    from agent_rl.trajectory import trace
    from agent_rl.trajectory.exports.records import flat_record, write_csv, write_jsonl

    rows: dict[str, list[trace.TrainedRow]] = trace.read_trained_rows(path)
    records = (flat_record(item, rows.get(item.id, ())) for item in chosen)
    write = write_csv if form == "csv" else write_jsonl
    return _replaced(target, lambda file: write(file, records))


def _atif(path: Path, chosen: Iterable[Trajectory], target: Path) -> int:
    from agent_rl.trajectory.exports.atif import to_atif

    model, count = _model(path), 0
    target.mkdir(parents=True, exist_ok=True)
    if any(target.glob("*.atif.json")):  # a reader could not tell the documents of two exports apart
        raise ConfigError("--out", f"{target} contains an earlier export", "Delete the folder, or choose another one")
    for count, trajectory in enumerate(chosen, 1):
        name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in trajectory.id)[:100]
        (target / f"{count:06d}_{name}.atif.json").write_text(json.dumps(to_atif(trajectory, model)))
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


def _model(path: Path) -> str | None:
    """Return the model of the run that wrote a trace, or None if the model is unknown."""
    file = path.with_name("run.json")
    if not file.is_file():
        return None
    model: str = json.loads(file.read_text())["configuration"]["actor_rollout_ref"]["model"]["path"]
    return model


def _replaced(target: Path, write: Callable[[Path], int]) -> int:
    """Write a file atomically; return the result of `write`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder) / target.name
        result = write(draft)
        os.replace(draft, target)
    return result
