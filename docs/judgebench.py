"""Measures judges on JudgeBench, and writes docs/reference/judgebench.json, which docs/references.py turns into a page.

python docs/judgebench.py judgebench.jsonl                                    # the rule
python docs/judgebench.py judgebench.jsonl --model outputs/models/smollm2     # a model on this machine as well
python docs/judgebench.py judgebench.jsonl --verdicts JudgeBench/outputs      # the published verdicts of other judges

The file is `dataset=judgebench,response_model=gpt-4o-2024-05-13.jsonl` of github.com/ScalerLab/JudgeBench. Figures
from an earlier call are kept unless the new call measures the same judge again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_rl.evaluation.judges import Judged, read_samples, report_on
from agent_rl.launch.run_folder import machine

__all__ = ["judgebench_page"]

PAGE = Path(__file__).parent / "reference/judgebench.json"
LONGER = ("rules", '{"target_chars": 1000000}')
"""A rule's kind and its configuration: of two answers below 1,000,000 characters, the longer one scores higher."""
MODEL = "SmolLM2-135M-Instruct"
MAX_TOKENS = 256
PUBLISHED = {
    "Arena-Hard prompt, o1-mini": ("o1-mini-2024-09-12", 65.71),
    "Skywork-Reward-Gemma-2-27B": ("Skywork_Skywork-Reward-Gemma-2-27B", 64.29),
    "InternLM2-20B-Reward": ("internlm_internlm2-20b-reward", 63.43),
    "Skywork-Reward-Llama-3.1-8B": ("Skywork_Skywork-Reward-Llama-3.1-8B", 62.29),
    "InternLM2-7B-Reward": ("internlm_internlm2-7b-reward", 59.43),
    "GRM-Gemma-2B": ("Ray2333_GRM-Gemma-2B-rewardmodel-ft", 59.43),
    "Arena-Hard prompt, GPT-4o": (None, 56.57),
    "Skywork-Critic-Llama-3.1-8B": (None, 53.43),
    "Vanilla prompt, GPT-4o": (None, 50.86),
    "Arena-Hard prompt, Llama-3.1-8B-Instruct": (None, 40.86),
}
"""Judges, each with the name of its file of verdicts and its accuracy in percent: https://arxiv.org/abs/2410.12784v2,
tables 1 to 3."""


def main(
    file: Annotated[Path, typer.Argument(help="The 350 pairs of GPT-4o's responses")],
    model: Annotated[Path | None, typer.Option(help=f"Folder of {MODEL}")] = None,
    verdicts: Annotated[Path | None, typer.Option(help="Folder outputs/ of JudgeBench's repository")] = None,
) -> None:
    """Measure the judges that the arguments name, and store their figures."""
    os.environ["VERL_PLATFORM"] = "cpu"
    stored: dict[str, Any] = json.loads(PAGE.read_text()) if PAGE.is_file() else {"judges": {}}
    judges = stored["judges"]
    judges["The longer answer"] = _measured(file, LONGER[0], "--component", LONGER[1])
    if model is not None:
        from agent_rl.verl_adapter.checkpoints import weights_digest  # imports verl, which the page does not need

        source = {"weights": weights_digest(model), "machine": machine(model)}
        for template in ("pairwise", "pointwise"):
            words = ("--template", template, "--max-tokens", str(MAX_TOKENS))
            judges[f"{MODEL}, {template}"] = {**_measured(file, str(model), *words), **source}
    if verdicts is not None:
        judges |= dict(_published(file, verdicts))
    stored["pairs_sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    PAGE.write_text(json.dumps(stored, indent=2) + "\n")


def _measured(file: Path, judge: str, *words: str) -> dict[str, Any]:
    command = ["agent-rl", "rm", "eval", judge, str(file), *words, "--json"]
    run = subprocess.run([sys.executable, "-m", "agent_rl.cli.main", *command[1:]], stdout=subprocess.PIPE, check=True)
    versions = {name: version(name) for name in ("agent_rl", "sglang", "torch", "transformers")}
    shown = shlex.join(file.name if word == str(file) else word for word in command)
    return {"command": shown, "report": json.loads(run.stdout), "versions": versions}


def _published(file: Path, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each published judge with `report_on`'s report on its verdicts in JudgeBench's repository."""
    ids = [json.loads(line)["pair_id"] for line in file.read_text().splitlines()]
    samples = dict(zip(ids, read_samples([str(file)]), strict=True))
    winners: dict[str | None, str | None] = {"A>B": "A", "B>A": "B", "A=B": "tie"}
    for name, (judge, _) in PUBLISHED.items():
        if judge is None:
            continue
        (source,) = folder.glob(f"*response_model=gpt-4o-2024-05-13,*judge_model={judge}.jsonl")
        judged = []
        for pair in map(json.loads, source.read_text().splitlines()):
            said = [winners.get(each["decision"]) for each in pair["judgments"]]
            judged.append(Judged(samples[pair["pair_id"]], list(said)))
        yield name, {"verdicts": source.name, "report": report_on(judged)}


def judgebench_page(note: str, table: Any) -> str:
    """Return the page with the stored figures.

    Args:
        note: first line of the page.
        table: function that makes a Markdown table from columns and rows.
    """
    stored = json.loads(PAGE.read_text())
    judges = stored["judges"]
    rows = [_row(name, judges.get(name), None) for name in judges if name not in PUBLISHED]
    rows += [_row(name, judges.get(name), accuracy) for name, (_, accuracy) in PUBLISHED.items()]
    commands = "\n".join(judge["command"] for judge in judges.values() if "command" in judge)
    return f"""{note}
# JudgeBench

This page shows how often judges find the correct one of two responses by GPT-4o, on the 350 pairs of
[JudgeBench](https://arxiv.org/abs/2410.12784). Each judge compares a pair in both orders. `accuracy` counts each order
as half a pair, and an unreadable verdict as wrong. `both orders` is JudgeBench's own figure: the share of pairs
for which more verdicts name the correct response than the other one; a judge that guesses reaches 25% to 50%. The last
column is the paper's figure (tables 1 to 3). We did not run the judges with a published figure: `agent-rl`
computed their other figures from the [verdicts](https://github.com/ScalerLab/JudgeBench) that JudgeBench published.

{table(("judge", "accuracy", "both orders", "consistent", "position bias", "unreadable", "published"), rows)}
`docs/judgebench.py` measured the rule and the model on this machine with these commands:

```text
{commands}
```

[judgebench.json](judgebench.json) contains all figures, by category, with versions and hashes. The file with
the pairs has the SHA-256 `{stored["pairs_sha256"][:16]}`.
"""


def _row(name: str, judge: dict[str, Any] | None, published: float | None) -> tuple[str, ...]:
    last = "" if published is None else f"{published:.2f}"
    if judge is None:
        return (name, *[""] * 5, last)
    report = judge["report"]
    accuracy = report["accuracy"]
    share = f"{100 * accuracy['mean']:.1f} [{100 * accuracy['low']:.1f}, {100 * accuracy['high']:.1f}]"
    bias = "" if report["position_bias"] is None else f"{report['position_bias']:.2f}".replace("-0.00", "0.00")
    consistent = "" if report["consistent"] is None else f"{100 * report['consistent']:.0f}"
    unreadable = f"{100 * report['unparsable']:.0f}"
    return name, share, f"{100 * report['both_orders']:.2f}", consistent, bias, unreadable, last


if __name__ == "__main__":
    typer.run(main)
