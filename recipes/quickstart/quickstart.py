"""The quickstart: on a CPU, a tiny agent learns to use its calculator, from the data to the table of results.

The script generates word problems, starts from a model that uses its tool badly (`model/`, made by the cold start),
trains the model with GRPO through verl's own trainer on the real SGLang engine, and evaluates it before and after
training on problems that it has never seen.

    python recipes/quickstart/quickstart.py --seed 0
    python recipes/quickstart/quickstart.py --from-scratch     # makes the model as well

All output is written to the folder `--out`: `summary.json`, `report.html`, `trace.jsonl` (every trajectory),
`metrics.jsonl` (every step), `train.log`, and the data and models.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent_rl.data import arithmetic, write_parquet
from agent_rl.data.worlds import load_world
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.evaluation.experiments.cold_start import MADE, ColdStart
from agent_rl.launch.command import quoted
from agent_rl.launch.output import command
from agent_rl.launch.stopping import STOPPED
from agent_rl.launch.training import train
from agent_rl.settings.sections import ColdStartSettings
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.trajectory.viewer.report import read_run, report

HERE = Path(__file__).parent
PROMPTS_PER_STEP = 16
TEST_PROBLEMS = 256
MODEL = HERE / "model"
"""The model of the repository after its cold start; `made.json` in this folder records how the model was made."""

console = Console()


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("outputs/quickstart"), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed for data, model and training, default: %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="GRPO steps, default: %(default)s")
    parser.add_argument("--test-problems", type=int, default=TEST_PROBLEMS, help="default: %(default)s")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--model", type=Path, default=MODEL, help="model folder to start from, default: %(default)s")
    start.add_argument("--from-scratch", action="store_true", help="make the model first, which takes some minutes")
    parser.add_argument("overrides", nargs="*", help="hydra overrides for the trainer, key=value")
    args = parser.parse_args(argv)
    os.environ["VERL_PLATFORM"] = "cpu"
    try:
        run(args)
    except AgentRLError as error:
        console.print(f"[bold red]error:[/] {error}", highlight=False, markup=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:
        if error.filename is None:
            raise
        console.print(f"[bold red]error:[/] {error.filename}: {error.strerror}", highlight=False, markup=True)
        sys.exit(2)


def run(args: argparse.Namespace) -> None:
    """Run the whole quickstart."""
    started = time.monotonic()
    out, steps = args.out.resolve(), args.steps
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").unlink(missing_ok=True)
    model = args.model
    if args.from_scratch:
        console.print("1/3 model: a small Qwen2 learns the ReAct format, together with bad habits")
        model = _cold_start(out / "model", args.seed)
    else:
        console.print(f"1/3 model: {model}")
    count = steps * PROMPTS_PER_STEP
    given = arithmetic.train_test(args.seed, count, args.test_problems, exclude=_seen(model))
    for split, problems in zip(("train", "test"), given, strict=True):
        write_parquet([arithmetic.to_row(p, split, i) for i, p in enumerate(problems)], out / f"{split}.parquet")
    console.print(f"2/3 data: {count} problems to train on, {args.test_problems} to evaluate on")

    train_started = time.monotonic()
    console.print(f"3/3 GRPO, {steps} steps on SGLang and verl")
    metrics = _train(out, model.resolve(), steps, [f"data.seed={args.seed}", *args.overrides])
    evaluations = [each for each in trace.read(out / "trace.jsonl") if each.info.get("split") == "test"]
    summary = _summarize(evaluations, metrics, steps, args.seed)
    summary["train_seconds"] = round(time.monotonic() - train_started, 1)
    summary["seconds"] = round(time.monotonic() - started, 1)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (out / "report.html").write_text(report([read_run(str(out))]), encoding="utf-8")
    _show_result(out, summary, evaluations)


def _cold_start(model: Path, seed: int) -> Path:
    """Make the model that training starts from."""
    overrides = [f"actor_rollout_ref.model.path={quoted(model)}", f"agent_rl.cold_start.seed={seed}"]
    start = ColdStart(str(HERE), overrides)
    (start.folder / MADE).unlink(missing_ok=True)  # an existing model is made again
    start.make()
    return start.model


def _seen(model: Path) -> frozenset[str]:
    """Return the questions and expressions of the model's cold start, if the model has a record of them."""
    record = next((each / MADE for each in (model, model.parent) if (each / MADE).is_file()), None)
    if record is None:
        return frozenset()
    made = ColdStartSettings(**json.loads(record.read_text())["settings"])
    if made.world != "arithmetic":
        return frozenset()
    counts = {"test": made.held_out, "episodes": made.episode_rows}
    splits = load_world(made.world).write(record.parent, made.seed, counts)
    return frozenset(row["extra_info"][key] for row in splits["episodes"] for key in ("question", "expression"))


def _train(out: Path, model: Path, steps: int, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """Train, and return the metrics of each step; step 0 is the evaluation before training."""
    given = [
        f"data.train_files={out}/train.parquet",
        f"data.val_files={out}/test.parquet",
        f"data.train_batch_size={PROMPTS_PER_STEP}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS_PER_STEP}",
        f"actor_rollout_ref.model.path={model}",
        f"trainer.total_training_steps={steps}",
        f"trainer.test_freq={steps}",
        f"trainer.save_freq={steps}",
        "trainer.resume_mode=disable",
        f"agent_rl.run.folder={out}",
    ]
    if train(str(HERE), [*given, *overrides]) is not None:
        sys.exit(STOPPED)  # the command that resumes the run has been printed
    return read_metrics(out)


def _summarize(
    evaluations: Sequence[Trajectory], metrics: list[dict[str, Any]], steps: int, seed: int
) -> dict[str, Any]:
    """Return a summary of both evaluations, computed from their trajectories."""
    summary: dict[str, Any] = {
        "engine": "sglang",
        "sglang_version": importlib.metadata.version("sglang"),
        "verl_version": importlib.metadata.version("verl"),
        "seed": seed,
        "steps": steps,
    }
    for when, step in (("before", 0), ("after", steps)):
        of_step = [t for t in evaluations if t.info["step"] == step]
        summary[f"val_reward_{when}"] = _mean(t.score.total for t in of_step if t.score)
        summary[f"val_accuracy_{when}"] = _mean(t.score.components["correctness"] for t in of_step if t.score)
        summary[f"tool_calls_per_trajectory_{when}"] = _mean(t.tool_calls for t in of_step)
        summary[f"malformed_rate_{when}"] = _mean(t.malformed_turns / max(1, len(t.turns)) for t in of_step)
    diffs = [m["training/rollout_probs_diff_mean"] for m in metrics if "training/rollout_probs_diff_mean" in m]
    summary["rollout_probs_diff_mean_max"] = max(diffs, default=None)
    return summary


def _mean(values: Any) -> float:
    return round(float(mean(values)), 4)


def _show_result(out: Path, summary: dict[str, Any], evaluations: Sequence[Trajectory]) -> None:
    table = Table(title="Results on problems that the agent has never seen")
    for column, justify in (("", "left"), ("before", "right"), ("after", "right"), ("change", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for name, label in (
        ("val_reward", "mean reward"),
        ("val_accuracy", "accuracy"),
        ("tool_calls_per_trajectory", "tool calls per problem"),
        ("malformed_rate", "malformed turns"),
    ):
        before, after = summary[f"{name}_before"], summary[f"{name}_after"]
        table.add_row(label, f"{before:.2f}", f"{after:.2f}", f"{after - before:+.2f}")
    console.print(table)
    before = [t for t in evaluations if t.info["step"] == 0]
    after = [t for t in evaluations if t.info["step"] == summary["steps"]]
    _show("before training, wrong", next((t for t in before if not t.score or t.score.total < 0.5), before[0]))
    _show("before training, wasteful", max(before, key=lambda t: t.tool_calls))
    _show("after training", next((t for t in after if t.score and t.score.total > 0.5), after[0]))
    console.print(f"{summary['seconds']:.0f} s in all. Summary: {out / 'summary.json'}", highlight=False)
    print(f"Curves: {out / 'report.html'}\nEvery trajectory: {command('view', str(out))}")


def _show(title: str, trajectory: Trajectory) -> None:
    text = Text()
    for message in trajectory.prompt:
        text.append(message.content + "\n", style="bold")
    for turn in trajectory.turns:
        text.append(turn.text.strip() + "\n")
        if turn.observation is not None:
            text.append(turn.observation + "\n", style="cyan")
    reward = f"{trajectory.score.total:+.2f}" if trajectory.score else "unscored"
    console.print(
        Panel(text, title=f"{title}: reward {reward}, right answer {trajectory.ground_truth}", title_align="left")
    )


if __name__ == "__main__":
    main()
