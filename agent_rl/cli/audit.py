"""The command `agent-rl audit tokens`."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import json_object
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.evaluation.audit import ChatTemplate, TurnAudit

__all__ = ["app"]

app = typer.Typer(help="Checks of what a run has stored.", no_args_is_help=True, add_completion=False)

EXAMPLES = 5
"""Examples that are shown for each kind of finding."""
COLUMNS = ("turns", "mask errors", "log-prob errors", "retokenized", "drift in tokens", "drift in text")


@app.callback()
def _audit() -> None: ...


@app.command()
def tokens(
    path: Annotated[Path, typer.Argument(help="A trace, a folder with one, or a dump of verl's rollouts")],
    tokenizer: Annotated[list[str], typer.Option(help="Folder or name of the model; may be repeated, to compare")],
    model: Annotated[
        str | None, typer.Option(help="Folder of the weights that have sampled, to compare log-probs with")
    ] = None,
    template_options: Annotated[str, typer.Option(help="data.apply_chat_template_kwargs, as JSON")] = "{}",
    out: Annotated[Path | None, typer.Option(help="File for every turn's findings, as JSON lines")] = None,
) -> None:
    """Compare each turn's sampled tokens with the mask, the log-probs and a fresh rendering of the conversation.

    A trace must have been written with agent_rl.trace.tokens=true; of a dump only the text is compared. Exit code 1
    when a mask or a log-prob is wrong; drift is reported only.
    """
    from rich.console import Console
    from rich.table import Table

    options = json_object("--template-options", template_options)
    compute = _compute(model) if model else None
    table = Table("template", "agent", *COLUMNS, title=str(path), title_justify="left")
    console, wrong, lines = Console(), False, []
    for template in (_template(name, options) for name in tokenizer):
        counts: dict[str, Counter[str]] = {}
        examples: dict[str, list[str]] = {}
        for agent, name, audits in _audits(path, template, compute):
            counted = counts.setdefault(agent, Counter())
            for audit in audits:
                found = _findings(audit)
                counted.update({"turns": 1, **dict.fromkeys(found, 1)})
                for kind, text in found.items():
                    examples.setdefault(kind, []).append(f"{name}, turn {audit.turn}: {text}")
                lines.append(json.dumps({"template": template.label, "trajectory": name, **dataclasses.asdict(audit)}))
        for agent, counted in sorted(counts.items()):
            table.add_row(template.label, agent, *(str(counted[column]) for column in COLUMNS))
            wrong = wrong or bool(counted["mask errors"] or counted["log-prob errors"])
        for kind, texts in examples.items():
            shown = [text for text in texts if not text.endswith(": ")][:EXAMPLES]
            if shown:
                console.print(f"[bold]{template.label}: {kind}[/]", highlight=False)
                console.print(*shown, sep="\n", markup=False, highlight=False)
    console.print(table)
    if out is not None:
        out.write_text("".join(f"{line}\n" for line in lines))
    raise typer.Exit(int(wrong))


def _audits(
    path: Path, template: ChatTemplate, compute: Callable[[list[int]], list[float]] | None
) -> Iterator[tuple[str, str, list[TurnAudit]]]:
    """Agent, name and findings of each trajectory."""
    from agent_rl import trace
    from agent_rl.evaluation.audit import audit_text, audit_trajectory, has_tokens
    from agent_rl.evaluation.dumps import read_dump, segments

    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    traces = trace.firsts(file for file in files if _is_trace(file))
    if not traces:
        for sample in read_dump(path):
            messages = [*segments(sample.input), *segments(sample.output, "assistant")]
            chat = [{"role": role, "content": text} for role, text in messages if text or role != "assistant"]
            yield "", f"step {sample.step}, {sample.row}", [audit_text(sample.input, sample.output, chat, template)]
        return
    kept = False
    for file in traces:
        for trajectory in trace.read(file, torn="skip", tokens=True):
            if has_tokens(trajectory):
                kept = True
                yield trajectory.agent, trajectory.id, audit_trajectory(trajectory, template, compute)
    if not kept:
        raise ConfigError(str(path), "the trace has no tokens", "Write it with agent_rl.trace.tokens=true")


def _is_trace(file: Path) -> bool:
    with open(file, "rb") as lines:
        return b'"stop_reason"' in next(lines, b"")


def _findings(audit: TurnAudit) -> dict[str, str]:
    found = {}
    if audit.mask:
        found["mask errors"] = audit.mask
    if audit.logprobs:
        found["log-prob errors"] = audit.logprobs
    if audit.retokenized:
        found["retokenized"] = ""
    if audit.drift != "none":
        found[f"drift in {audit.drift}"] = audit.difference
    return found


def _template(name: str, options: dict[str, Any]) -> ChatTemplate:
    from agent_rl.evaluation.audit import ChatTemplate
    from agent_rl.policies.tokenizer import load_tokenizer

    return ChatTemplate(Path(name).name, load_tokenizer(name, "--tokenizer"), options)


def _compute(folder: str) -> Callable[[list[int]], list[float]]:
    """The log-probability of every token but the first."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    except (OSError, ValueError) as error:
        problem = f"transformers cannot load {folder!r} ({str(error).splitlines()[0]})"
        raise ConfigError("--model", problem, "Name the folder of the model's weights") from None

    def compute(ids: list[int]) -> list[float]:
        given = torch.tensor([ids])
        with torch.no_grad():
            logits_TV = model(given).logits[0, :-1].float()
        chosen: list[float] = logits_TV.log_softmax(-1).gather(1, given[0, 1:, None])[:, 0].tolist()
        return chosen

    return compute
