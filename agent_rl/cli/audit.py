"""The command `agent-rl audit tokens`."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Json, json_object, print_json
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.evaluation.audit import TurnAudit
    from agent_rl.policies.chat_template import ChatTemplate

__all__ = ["GROUP", "app"]

GROUP = "look"

app = typer.Typer(
    help="Check tokens, masks and log-probs that a run has stored.", no_args_is_help=True, add_completion=False
)

EXAMPLES = 5
"""Examples that are shown for each kind of finding."""
COLUMNS = ("turns", "mask_errors", "logprob_errors", "retokenized", "token_drift", "text_drift")


@app.callback()
def _audit() -> None: ...


@app.command()
def tokens(
    path: Annotated[Path, typer.Argument(help="A trace, or a folder with one")],
    tokenizer: Annotated[list[str], typer.Option(help="Folder or name of the model; may be repeated, to compare")],
    template_options: Annotated[str, typer.Option(help="data.apply_chat_template_kwargs, as JSON")] = "{}",
    out: Annotated[Path | None, typer.Option(help="File for every turn's findings, as JSON lines")] = None,
    as_json: Json = False,
) -> None:
    """Compare each turn's sampled tokens with the mask, the log-probs and a fresh rendering of the conversation.

    A trace must have been written with agent_rl.trace.tokens=true. Exit code 1 when a mask or a log-prob is wrong;
    drift is reported only. An interrupted audit goes on with the same command.

    --json: `ok`, `agents` (each with `template`, `agent`, `turns`, `mask_errors`, `logprob_errors`, `retokenized`,
    `token_drift`, `text_drift`), `examples` (each with `template`, `kind`, `text`).
    """
    options = json_object("--template-options", template_options)
    rows: list[dict[str, Any]] = []
    examples: list[dict[str, str]] = []
    lines: list[str] = []
    for template in (_template(name, options) for name in tokenizer):
        counts: dict[str, Counter[str]] = {}
        shown: Counter[str] = Counter()
        for agent, name, audits in _kept_audits(path, template):
            counted = counts.setdefault(agent, Counter())
            for audit in audits:
                found = _findings(audit)
                counted.update({"turns": 1, **dict.fromkeys(found, 1)})
                for kind, text in found.items():
                    if text and shown[kind] < EXAMPLES:
                        shown[kind] += 1
                        text = f"{name}, turn {audit.turn}: {text}"
                        examples.append({"template": template.label, "kind": kind, "text": text})
                lines.append(json.dumps({"template": template.label, "trajectory": name, **dataclasses.asdict(audit)}))
        for agent, counted in sorted(counts.items()):
            rows.append({"template": template.label, "agent": agent, **{column: counted[column] for column in COLUMNS}})
    if out is not None:
        out.write_text("".join(f"{line}\n" for line in lines))
    ok = not any(row["mask_errors"] or row["logprob_errors"] for row in rows)
    if as_json:
        print_json({"ok": ok, "agents": rows, "examples": examples})
    else:
        _show(path, rows, examples)
    raise typer.Exit(not ok)


def _show(path: Path, rows: list[dict[str, Any]], examples: list[dict[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    examples.sort(key=lambda each: (each["template"], each["kind"]))
    for heading, group in groupby(examples, lambda each: f"{each['template']}: {each['kind']}"):
        console.print(heading, style="bold", markup=False)
        console.print(*(each["text"] for each in group), sep="\n", markup=False)
    columns = ("template", "agent", *(column.replace("_", " ") for column in COLUMNS))
    table = Table(*columns, title=str(path), title_justify="left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)


def _kept_audits(path: Path, template: ChatTemplate) -> Iterator[tuple[str, str, list[TurnAudit]]]:
    """Agent, name and findings of each trajectory; what an interrupted command has found is not computed again."""
    from agent_rl.evaluation.audit import TurnAudit
    from agent_rl.pieces import pieces

    work = [sorted(path.glob("*.jsonl")) if path.is_dir() else path, template.label, template.options]
    with pieces("trajectories", None, work) as kept:
        for number, (agent, name, audit) in enumerate(_audits(path, template)):
            if number not in kept:
                kept.add(number, [dataclasses.asdict(each) for each in audit()])
            yield agent, name, [TurnAudit(**each) for each in kept[number]]


def _audits(path: Path, template: ChatTemplate) -> Iterator[tuple[str, str, Callable[[], list[TurnAudit]]]]:
    """Agent, name and audit of each trajectory."""
    from agent_rl import trace
    from agent_rl.evaluation.audit import audit_trajectory, has_tokens

    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    traces = trace.firsts(file for file in files if _is_trace(file))
    if not traces:
        raise ConfigError(str(path), "there is no trace", "Name a trace, or a folder with one")
    kept = False
    for file in traces:
        for trajectory in trace.read(file, torn="skip", tokens=True):
            if has_tokens(trajectory):
                kept = True
                yield trajectory.agent, trajectory.id, partial(audit_trajectory, trajectory, template)
    if not kept:
        raise ConfigError(str(path), "the trace has no tokens", "Write it with agent_rl.trace.tokens=true")


def _is_trace(file: Path) -> bool:
    with open(file, "rb") as lines:
        return b'"stop_reason"' in next(lines, b"")


def _findings(audit: TurnAudit) -> dict[str, str]:
    wrong = {"mask_errors": audit.mask, "logprob_errors": audit.logprobs}
    found = {kind: text for kind, text in wrong.items() if text}
    if audit.retokenized:
        found["retokenized"] = ""
    if audit.drift != "none":
        found["text_drift" if audit.drift == "text" else "token_drift"] = audit.difference
    return found


def _template(name: str, options: dict[str, Any]) -> ChatTemplate:
    from agent_rl.policies.chat_template import ChatTemplate
    from agent_rl.policies.tokenizer import load_tokenizer

    return ChatTemplate(load_tokenizer(name, "--tokenizer"), options, Path(name).name)
