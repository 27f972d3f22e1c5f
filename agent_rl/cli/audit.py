"""The `agent-rl audit tokens` command."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Json, json_object, print_result
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.agents.policies.chat_template import ChatTemplate

LogProbs = Callable[[list[int]], list[float]]

app = typer.Typer(
    rich_help_panel="look", help="Check the tokens, masks and log-probs that a run has stored.", no_args_is_help=True
)

EXAMPLES = 5
"""Number of examples shown per kind of finding."""
COLUMNS = ("turns", "mask_errors", "logprob_errors", "retokenized", "token_drift", "text_drift")


@app.command()
def tokens(
    path: Annotated[Path, typer.Argument(help="Trace, or a folder that contains a trace")],
    tokenizer: Annotated[
        list[str], typer.Option(help="Folder or name of a model; repeat the option to compare several")
    ],
    model: Annotated[
        str | None, typer.Option(help="Folder with the weights that sampled the turns, to compare log-probs")
    ] = None,
    template_options: Annotated[str, typer.Option(help="Value of data.apply_chat_template_kwargs, as JSON")] = "{}",
    out: Annotated[Path | None, typer.Option(help="JSON lines file for the findings in every turn")] = None,
    as_json: Json = False,
) -> None:
    """Compare each turn's sampled tokens with the mask, the log-probs and a fresh rendering of the conversation.

    The trace must have been written with agent_rl.trace.tokens=true. Exit code 1: a mask or a log-prob is wrong;
    drift is only reported.

    --json: `ok`, `agents` (each with `template`, `agent`, `turns`, `mask_errors`, `logprob_errors`, `retokenized`,
    `token_drift`, `text_drift`), `examples` (each with `template`, `kind`, `text`).
    """
    options = json_object("--template-options", template_options)
    from agent_rl.evaluation.model_log_probs import ModelLogProbs

    compute = ModelLogProbs(model) if model else None
    folders = Counter(Path(name).name for name in tokenizer)  # in checkpoints, all are named `huggingface`
    labels = {name: Path(name).name if folders[Path(name).name] == 1 else name for name in tokenizer}
    templates = (_template(name, options, label) for name, label in labels.items())
    turns = [turn for template in templates for turn in _audited(path, template, compute)]
    if out is not None:
        out.write_text("".join(f"{json.dumps(turn)}\n" for turn in turns))
    rows, examples = _counts(turns), list(_examples(turns))
    ok = not any(row["mask_errors"] or row["logprob_errors"] for row in rows)
    print_result({"ok": ok, "agents": rows, "examples": examples}, as_json, *_lines(path, rows, examples))
    raise typer.Exit(not ok)


def _counts(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the findings by template and agent."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for turn in turns:
        counter = counts.setdefault((turn["template"], turn["agent"]), Counter())
        counter.update(["turns", *_findings(turn)])
    return [
        {"template": template, "agent": agent, **{column: counter[column] for column in COLUMNS}}
        for (template, agent), counter in counts.items()
    ]


def _examples(turns: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield a few findings of each kind."""
    shown: Counter[tuple[str, str]] = Counter()
    for turn in turns:
        for kind, text in _findings(turn).items():
            if text and shown[turn["template"], kind] < EXAMPLES:
                shown[turn["template"], kind] += 1
                text = f"{turn['trajectory']}, turn {turn['turn']}: {text}"
                yield {"template": turn["template"], "kind": kind, "text": text}


def _lines(path: Path, rows: list[dict[str, Any]], examples: list[dict[str, str]]) -> Iterator[object]:
    from rich.table import Table
    from rich.text import Text

    in_order = sorted(examples, key=lambda example: (example["template"], example["kind"]))
    for heading, group in groupby(in_order, lambda example: f"{example['template']}: {example['kind']}"):
        yield Text(heading, style="bold")
        yield from (Text(example["text"]) for example in group)
    columns = ("template", "agent", *(column.replace("_", " ") for column in COLUMNS))
    table = Table(*columns, title=Text(str(path)), title_justify="left")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    yield table


def _audited(path: Path, template: ChatTemplate, compute: LogProbs | None) -> Iterator[dict[str, Any]]:
    """Yield the findings for each turn of the trajectories."""
    from agent_rl.evaluation.audit import audit_trajectory
    from agent_rl.trajectory import trace
    from agent_rl.trajectory.trace.files import trace_of

    any_tokens = False
    for trajectory in trace.read(trace_of(path), torn="skip", tokens=True):
        if "tokens" not in trajectory.info:  # agent_rl.trace.tokens was not set
            continue
        any_tokens = True
        identity = {"template": template.label, "agent": trajectory.agent, "trajectory": trajectory.id}
        for audit in audit_trajectory(trajectory, template, compute):
            yield {**identity, **dataclasses.asdict(audit)}
    if not any_tokens:
        raise ConfigError(str(path), "the trace has no tokens", "Write the trace with agent_rl.trace.tokens=true")


def _findings(turn: dict[str, Any]) -> dict[str, str]:
    """Return a turn's findings as text, by kind."""
    texts = {"mask_errors": turn["mask"], "logprob_errors": turn["logprobs"]}
    findings = {kind: text for kind, text in texts.items() if text}
    if turn["retokenized"]:
        findings["retokenized"] = ""
    if turn["drift"] != "none":
        findings["text_drift" if turn["drift"] == "text" else "token_drift"] = turn["difference"]
    return findings


def _template(name: str, options: dict[str, Any], label: str) -> ChatTemplate:
    from agent_rl.agents.policies.chat_template import ChatTemplate, load_tokenizer

    return ChatTemplate(load_tokenizer(name, "--tokenizer"), options, label)
