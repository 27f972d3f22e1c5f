"""`report` renders runs as a self-contained page with curves, warnings, trajectories and configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from agent_rl.errors import ConfigError, reason_of
from agent_rl.trajectory.estimates import Estimate, estimate_mean, estimate_rate
from agent_rl.trajectory.run_files import RunState, leaves, read_metrics, run_state
from agent_rl.trajectory.selection import FATES
from agent_rl.trajectory.symptoms import SymptomWarning, components, end_warnings, run_warnings, series
from agent_rl.trajectory.trace import image_folder
from agent_rl.trajectory.viewer.charts import Chart
from agent_rl.trajectory.viewer.images import names_of, thumbnail
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.query import Query
from agent_rl.trajectory.viewer.records import find_sources
from agent_rl.trajectory.viewer.rendering import environment

CHARTS: dict[str, dict[str, str]] = {
    "Reward": {"critic/score/mean": "mean", "critic/score/max": "highest", "critic/score/min": "lowest"},
    "Success": {"agent/acc": "training", "agent/correctness": "correctness"},
    "Tools": {"agent/tool_calls": "calls", "agent/tool_errors": "errors", "agent/repeated_calls": "repeated calls"},
    "Turns": {"agent/turns": "turns", "agent/malformed_turns": "malformed"},
    "Response tokens": {"response_length/mean": "mean", "response_length/max": "longest"},
    "Seconds per step": {
        "timing_s/step": "step", "timing_s/gen": "generation", "timing_s/old_log_prob": "old log-probs",
        "timing_s/ref": "reference", "timing_s/update_actor": "update", "timing_s/update_weights": "weights",
    },
    "Tokens per second": {"perf/throughput": "tokens per second and GPU"},
    "Unscored": {"agent/unscored": "trajectories"},
    "Not trained, by reason": {f"agent/{fate}_share": text for fate, text in FATES.items() if fate != "kept"},
    "Reward of trained minus all trajectories": {
        "agent/bias_reward": "estimate", "agent/bias_reward_bound": "largest possible size",
    },
    "KL and entropy": {"actor/kl_loss": "KL", "actor/ppo_kl": "KL to the old policy", "actor/entropy": "entropy"},
    "Gradient norm": {"actor/grad_norm": "actor"},
}  # fmt: skip
"""For each chart, the keys of its metrics and their names in the legend."""
RUN_CHARTS = {
    "Reward": {"critic/score/mean": "mean"},
    "Correctness": {"agent/correctness": "training"},
    "Response tokens": CHARTS["Response tokens"],
    "Tool calls per trajectory": CHARTS["Tools"],
    "Entropy": {"actor/entropy": "entropy"},
    "Seconds per step": {"timing_s/step": "step", "timing_s/gen": "generation", "timing_s/update_actor": "update"},
}
"""The curves on the viewer's first page."""
COMPARED = {
    "critic/score/mean": "Reward",
    "agent/acc": "Success",
    "agent/tool_calls": "Tool calls",
    "agent/tool_errors": "Tool errors",
    "agent/turns": "Turns",
    "agent/malformed_rate": "Malformed turns, share",
    "response_length/mean": "Response tokens",
    "agent/unscored": "Unscored trajectories",
    "timing_s/step": "Seconds per step",
    "perf/throughput": "Tokens per second and GPU",
}
"""Metrics that the tables show, with their titles; a comparison of several runs has a chart of each metric."""
FACTS = {
    "model": "actor_rollout_ref.model.path",
    "data": "data.train_files",
    "algorithm": "algorithm.adv_estimator",
    "seed": "data.seed",
}
"""The configuration keys whose values appear in a run's heading, by label."""
ENDS = 3
"""Number of steps over which tables average at the start and at the end of a run; in a short run, half of its steps."""
MOST_SHOWN = 3
"""Maximum number of best trajectories, and of worst trajectories, on the page."""
MOST_IMAGES = 12
"""Maximum number of images per trajectory."""
_MOST_DIFFERENCES = 100


Success = tuple[int, Estimate]
"""A step, and the mean correctness over its prompts."""


@dataclass(frozen=True)
class Trajectories:
    """The part of a page that comes from a run's trace, which is empty if the run has no trace."""

    success: Sequence[Success] = ()
    held_out: Sequence[Success] = ()
    """The mean correctness in each validation during training."""
    best: Sequence[Mapping[str, Any]] = ()
    worst: Sequence[Mapping[str, Any]] = ()
    changed: Sequence[Mapping[str, Any]] = ()
    """Prompts whose reward differs most between two steps."""
    between: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Run:
    """The metrics and the description in a run's folder.

    Attributes:
        name: the name of the folder.
        path: the folder.
        steps: the metrics of each step, with the number of the step under `step`.
        about: the content of `run.json` (command, configuration, versions, files); empty if there is no such file.
    """

    name: str
    path: Path
    steps: Sequence[Mapping[str, Any]]
    about: Mapping[str, Any]

    @property
    def training(self) -> list[Mapping[str, Any]]:
        """The training steps, without the validation before the first step."""
        return [metrics for metrics in self.steps if "critic/score/mean" in metrics]

    @cached_property
    def state(self) -> RunState:
        """The progress of the run, and how it ended."""
        return run_state(self.path, self.about, self.steps)

    @property
    def warnings(self) -> list[SymptomWarning]:
        """The warnings about the run, starting with those about its end."""
        return [*end_warnings(self.state), *run_warnings(self.training, self.about.get("configuration") or {})]


def read_run(folder: str) -> Run:
    """Read a run's folder.

    Raises:
        ConfigError: the folder contains neither metrics nor `run.json`, or they cannot be read.
    """
    path, about = Path(folder), Path(folder) / "run.json"
    try:
        description = json.loads(about.read_text()) if about.is_file() else {}
        steps = read_metrics(path) if (path / "metrics.jsonl").exists() or not about.is_file() else []
    except (OSError, ValueError, KeyError) as error:
        problem = f"the folder has no readable metrics ({reason_of(error)})" if path.is_dir() else reason_of(error)
        raise ConfigError(folder, problem, "Pass a run's folder, outputs/<experiment>, with metrics.jsonl") from error
    return Run(path.resolve().name, path, steps, description)


def facts(run: Run) -> dict[str, Any]:
    """Return a run's command, versions, file hashes and metrics as JSON data; metrics are pairs (step, value)."""
    files: Mapping[str, Any] = run.about.get("files") or {}
    keys = [*COMPARED, "actor/entropy", "training/rollout_probs_diff_mean"]
    return {
        "name": run.name,
        "command": _command(run),
        "versions": run.about.get("versions") or {},
        "sha256": {key: [file.get("sha256") for file in used] for key, used in files.items()},
        "steps": len(run.training),
        "validation": dict(_validation(run)),
        "metrics": {key: points for key in keys if (points := series(run.training, key))},
    }


def run_facts(run: Run) -> dict[str, str]:
    """Return a run's model, data, algorithm, seed and times by label, for its heading."""
    keys = dict(leaves(run.about.get("configuration") or {}))
    values = {name: keys.get(key) for name, key in FACTS.items()}
    if started := run.about.get("started"):
        values["started"] = started[-1][:16].replace("T", " ")
    seconds = [value for _, value in series(run.training, "timing_s/step")]
    values["time in steps"] = f"{sum(seconds) / 60:.1f} min" if seconds else None
    shown = {name: value for name, value in values.items() if value}
    return {name: ", ".join(value) if isinstance(value, list) else str(value) for name, value in shown.items()}


def _command(run: Run) -> str:
    """Return the command line that started the run, without the path to the program's folder."""
    program, *words = run.about.get("command") or [""]
    return " ".join([Path(program).name, *words]).strip()


def report(runs: Sequence[Run]) -> str:
    """Return the HTML page of one or more runs; several runs are also compared."""
    style = Path(__file__).with_name("static").joinpath("viewer.css").read_text(encoding="utf-8")
    comparison = _comparison(runs) if len(runs) > 1 else {}
    template = environment().get_template("report.html")
    return template.render(runs=[*map(_shown, runs)], comparison=comparison, style=Markup(style), ends=ENDS)


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the charts of one run, or the charts that compare several runs."""
    return _compared(runs) if len(runs) > 1 else _charts_of(runs[0], _trajectories(runs[0]))


def run_charts(run: Run) -> list[Chart]:
    """Return the six charts on the viewer's first page; some may be empty."""
    validations = {
        f"validation {name.partition('/acc/')[0]}": [(step, value, None, None) for step, value in points]
        for name, points in _validation(run)
        if "/acc/" in name
    }
    marks = {"Correctness": validations}
    return [Chart(title, _lines(run.training, keys), {}, marks.get(title, {})) for title, keys in RUN_CHARTS.items()]


def _charts_of(run: Run, trajectories: Trajectories) -> list[Chart]:
    """Return the charts of one run that are not empty."""
    names = components(run.training, run.about.get("configuration") or {})
    figures = [Chart(title, _lines(run.training, keys)) for title, keys in CHARTS.items()]
    ends = [key for step in run.training[:1] for key in step if key.startswith("agent/stop_")]
    stops = {key: key.removeprefix("agent/stop_") for key in ends if any(v for _, v in series(run.training, key))}
    parts = {f"agent/{name}": name for name in names}
    figures.insert(1, Chart("Components of the reward", _lines(run.training, parts)))
    figures.insert(4, Chart("Stop reasons", _lines(run.training, stops)))
    if success := trajectories.success:
        points = [(step, each.mean) for step, each in success]
        band = [(step, each.low, each.high) for step, each in success if each.low is not None and each.high is not None]
        marks = [(step, each.mean, each.low, each.high) for step, each in trajectories.held_out]
        held_out = {"held-out rows": marks} if marks else {}
        figures[2] = Chart("Success, with its 95% interval", {"training": points}, {"training": band}, held_out)
    return [chart for chart in figures if chart]


def _compared(runs: Sequence[Run]) -> list[Chart]:
    """Return a chart of each metric that any run logged, with one line per run."""
    pairs = list(zip(_names(runs), runs, strict=True))
    lines = {title: {name: series(run.training, key) for name, run in pairs} for key, title in COMPARED.items()}
    return [chart for title, by_run in lines.items() if (chart := Chart(title, by_run))]


def _svg(figures: Iterable[Chart]) -> Markup:
    return Markup("".join(chart.svg() for chart in figures))


def _shown(run: Run) -> dict[str, Any]:
    configuration, trajectories = run.about.get("configuration") or {}, _trajectories(run)
    ends = max(1, min(ENDS, len(run.training) // 2))
    return {
        "name": run.name,
        "run": run,
        "facts": run_facts(run),
        "steps": len(run.training),
        "charts": _svg(_charts_of(run, trajectories)),
        "ends": ends,
        "table": [
            (title, key, fmean(values[:ends]), fmean(values[-ends:])) for title, key, (values,) in _values([run])
        ],
        "validation": _validation(run),
        "trajectories": trajectories,
        "success": [
            (kind, success)
            for kind, successes in (("", trajectories.success), ("held-out ", trajectories.held_out))
            for success in dict.fromkeys([*successes[:1], *successes[-1:]])
        ],
        "command": _command(run),
        "versions": run.about.get("versions") or {},
        "configuration": json.dumps(configuration, indent=2, ensure_ascii=False),
    }


def _comparison(runs: Sequence[Run]) -> dict[str, Any]:
    flat = [
        {key: json.dumps(value, ensure_ascii=False) for key, value in leaves(run.about.get("configuration") or {})}
        for run in runs
    ]
    keys = sorted({key for configuration in flat for key in configuration})
    differences = [(key, [configuration.get(key, "\u2013") for configuration in flat]) for key in keys]
    return {
        "runs": _names(runs),
        "last": [
            (title, key, [fmean(each[-ENDS:]) if each else None for each in values])
            for title, key, values in _values(runs)
        ],
        "charts": _svg(_compared(runs)),
        "differences": [(key, values) for key, values in differences if len(set(values)) > 1][:_MOST_DIFFERENCES],
    }


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the name of each run, or its path if several runs have the same name."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else str(run.path) for run in runs]


def _lines(steps: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, list[tuple[int, float]]]:
    return {name: points for key, name in keys.items() if (points := series(steps, key))}


def _values(runs: Sequence[Run]) -> Iterator[tuple[str, str, list[list[float]]]]:
    """Yield the title, the key and each run's values for every metric of the tables that any run logged."""
    for key, title in COMPARED.items():
        values = [[value for _, value in series(run.training, key)] for run in runs]
        if any(values):
            yield title, key, values


def _validation(run: Run) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return the accuracies and rewards on validation rows as points, one for each step."""
    keys = sorted({key for metrics in run.steps for key in metrics if key.startswith("val-")})
    shown = [key for key in keys if key.split("/")[-2] in ("acc", "reward")]
    return [(key.partition("/")[2], series(run.steps, key)) for key in shown]


def _trajectories(run: Run) -> Trajectories:
    """Read the mean correctness by step, and the trajectories to show, from a run's trace."""
    file = run.path / "trace.jsonl"
    if not file.is_file() or not run.training:
        return Trajectories()
    (source,) = find_sources([str(file)])
    with closing(TraceIndex([source])) as index:
        index.refresh()
        if not index.count():
            return Trajectories()
        train = {"split": "train"} if "train" in dict(index.choices()["split"]) else {}
        by_reward = {"step": str(run.training[-1]["step"]), **train, "sort": "reward"}
        place = image_folder(source.path)
        best, worst = (
            [{**row, "record": _with_thumbnails(index.record(row), place)} for row in _of_several(index, query)]
            for query in (Query({**by_reward, "order": order}) for order in ("desc", "asc"))
        )
        held_out = list(_successes(index, run.steps, {"split": "test"}))
        # compare two validations if possible, because they have the same prompts, unlike training steps
        training_steps = [int(metrics["step"]) for metrics in run.training]
        steps = [step for step, _ in held_out] if len(held_out) > 1 else training_steps
        between = steps[0], steps[-1]
        one, other = ((source.name, step) for step in between)
        changed = index.compare(one, other)[0][:5] if one != other else []
        return Trajectories(list(_successes(index, run.training, train)), held_out, best, worst, changed, between)


def _of_several(index: TraceIndex, query: Query) -> list[dict[str, Any]]:
    """Return the first trajectories of a query, at most one per prompt."""
    by_prompt: dict[str, dict[str, Any]] = {}
    for row in index.find(query):
        by_prompt.setdefault(row["prompt_key"], row)
    return list(by_prompt.values())[:MOST_SHOWN]


def _successes(index: TraceIndex, steps: Sequence[Mapping[str, Any]], facets: Mapping[str, str]) -> Iterator[Success]:
    for step in (int(metrics["step"]) for metrics in steps):
        if rows := index.correctness(step, facets):
            is_rate = all(0 <= value <= 1 for row in rows for value in row)
            yield step, estimate_rate(rows) if is_rate else estimate_mean(rows)


def _with_thumbnails(record: dict[str, Any], place: Path) -> dict[str, Any]:
    """Embed small versions of a record's first images in the record, and return it."""
    left = MOST_IMAGES
    for holder, names in names_of(record):
        thumbnails = [image for name in names[:left] if (image := thumbnail(place, name))]
        left -= len(thumbnails)
        holder["pictures"] = [{"address": image} for image in thumbnails]
    return record
