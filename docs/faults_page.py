"""Generates docs/reference/faults.md: what a run loses when something breaks, and whether its processes grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["faults_page"]

Record = Mapping[str, Any]
Markdown = Callable[..., str]


def faults_page(note: str, markdown: Markdown, where: Callable[..., str], figures: Callable[[str], Any]) -> str:
    """Return the page with the results of `make faults`, `make hostile`, `make failures` and `make growth`.

    Args:
        note: the comment at the top.
        markdown: returns a table from its columns and rows.
        where: returns the machine and the versions of a result as text.
        figures: returns a result by its name.
    """
    failures, growth = figures("failures"), figures("growth")
    return "\n".join(
        [
            f"{note}\n# Faults\n\n{_faults(markdown, where, figures('faults'))}",
            f"## Hostile machines\n\n{_hostile(markdown, where, figures('hostile'))}",
            f"## Failed trajectories\n\n{_failures(markdown, where, failures)}",
            f"## Hours of small steps\n\n{_growth(markdown, where, growth)}",
        ]
    )


def _faults(markdown: Markdown, where: Callable[..., str], record: Record) -> str:
    cases: dict[str, list[Any]] = {}
    for name, case in record["cases"].items():
        cases.setdefault(name.rpartition(" ")[0], []).append(case)
    killed = sum(len(cases.get(kind, ())) for kind in record["kills"])
    head = f"""`make faults` wrote this page on {where(record["machine"], record["versions"])}.
[faults.json](faults.json) lists every run: the moment, what was hit, how each start ended, and what it printed.

Each run trains for {record["steps"]} steps on a CPU and saves a checkpoint every {record["saved"]} steps. One fault
occurs at a random moment, drawn from a seed. If the run stops, the same command resumes it. A run passes if, at its
end, every step was trained on the rows of the undisturbed run, every row of these steps is in the trace exactly once
with its tokens, every sampled token was trained on or there is a reason why not, and no process, temporary file or
shared memory was left, except a semaphore of 32 bytes after SIGKILL to the launcher. A failing tool or judge may leave
trajectories without a score. verl logs the metrics of a step after it has written the step's checkpoint, so the metrics
of one step are missing if the run ends in between; all other steps must be in the metrics. **{killed} of
{record["runs"]} runs with SIGKILL have been executed so far**.
"""
    rows = []
    for kind, own in cases.items():
        alone, starts = sum(len(case["ends"]) == 1 for case in own), [len(case["ends"]) for case in own]
        lost = ("repeated", "unscored", "records_lost", "metrics_lost")
        sums = [str(sum(case.get(name, 0) for case in own)) for name in lost]
        steps = " to ".join(str(each) for each in sorted({case["steps"] for case in own}))
        failed = [case["problems"][0] for case in own if case["problems"]]
        verdict = "passed" if not failed else f"{len(failed)} failed: {'; '.join(failed)}"
        resumed = f"{len(own) - alone}" + (f" (up to {max(starts) - 1} times)" if max(starts) > 2 else "")
        rows.append((kind, str(len(own)), str(alone), resumed, steps, *sums, verdict))
    numbers = ("runs", "finished alone", "resumed", "steps", "steps trained twice", "unscored")
    losses = ("trace records lost", "steps without metrics")
    return f"{head}\n{markdown(('fault', *numbers, *losses, 'verdict'), rows)}"


def _hostile(markdown: Markdown, where: Callable[..., str], record: Record) -> str:
    head = f"""`make hostile` wrote this section on {where(record["machine"], record["versions"])}.

Each command ran on an ordinary machine, on one without a network, and with a `TMPDIR` of 70 bytes (`train` refuses more
than 75), a home folder that cannot be written to, a `/dev/shm` of 1 MiB, and variables that name a proxy which does not
answer. A command passes if its result is complete and if it leaves no more files and processes than it does on the
ordinary machine; it may also refuse a machine at once, with the variable and a remedy. The table has the seconds of
each command.
"""
    cells: dict[str, dict[str, str]] = {}
    for name, case in record["cases"].items():
        machine, _, command = name.partition(": ")
        refused = case["refusal"] and f"refused: {case['refusal']}"
        cells.setdefault(command, {})[machine] = case["problem"] or refused or f"{case['seconds']:.0f}"
    machines = list(next(iter(cells.values())))
    rows = [(f"`agent-rl {command}`", *(own[machine] for machine in machines)) for command, own in cells.items()]
    return f"{head}\n{markdown(('command', *machines), rows)}"


def _failures(markdown: Markdown, where: Callable[..., str], record: Record) -> str:
    rewards, runs = record["rewards_of_5_steps"], record["runs"]
    steps = len(runs[0]["reward"])
    head = f"""`make failures` wrote this section on {where(record["machine"], record["versions"])}.

The quickstart's model trains for {steps} steps with a calculator on a server and a judge on a server. In some of the
runs, about 5% of the trajectories fail and get no score: the tool's server or the judge answers with status 500, the
engine refuses a request, or the session breaks after a turn. Each failure costs one sample, because nothing is tried
again.

{record["unscored_share"]:.1%} of the trajectories failed. Scored trajectories per second were
{record["ratio"]:.0%} of those of the undisturbed runs ({record["per_second"]["failing"]:.1f} and
{record["per_second"]["undisturbed"]:.1f}). The mean reward of the runs with failures, and the range of the
{sum(not (each["share"] or each["is_frozen"]) for each in runs)} undisturbed seeds, with the mean difference of the
seeds and its 95% interval:
"""
    columns = ("steps", "with failures", "undisturbed", "difference")
    rows = []
    parts = zip(rewards["failing"], rewards["undisturbed"], rewards["difference"], strict=True)
    for at, (own, (low, high), less) in enumerate(parts):
        difference = f"{less['mean']:+.3f} [{less['low']:+.3f}, {less['high']:+.3f}]"
        rows.append((f"{5 * at + 1} to {5 * at + 5}", f"{own:.3f}", f"{low:.3f} to {high:.3f}", difference))
    own, all_ = record["frozen"]["failing"], record["frozen"]["undisturbed"]
    tail = f"""With a learning rate of 0, the mean reward of {steps} steps was {own["mean"]:.3f} (standard error
{own["error"]:.3f}) with failures and {all_["mean"]:.3f} ({all_["error"]:.3f}) without: the failures by themselves
shift the mean by {own["mean"] - all_["mean"]:+.3f}.
"""
    return f"{head}\n{markdown(columns, rows)}\n{tail}"


def _growth(markdown: Markdown, where: Callable[..., str], record: Record) -> str:
    more, disk = record["more"], record["mib_per_hour"]
    above = {problem.partition(" grows by")[0] for problem in record["problems"]}
    head = f"""`make growth` wrote this section on {where(record["machine"], record["versions"])}.

The quickstart's model trains for {record["hours"]:.1f} hours, {record["steps"]:,} steps, and saves a checkpoint every
100 steps. Every {record.get("every_s", 60):g} seconds, the command reads each process's memory (proportional set size
without the pages of files), descriptors and threads, and counts processes and files in `/tmp` and `/dev/shm`. The first
tenth is not counted. The trend of the rest, continued to eight hours, may be at most 1% and 8 MiB for each process
(others are bold), and nothing else may become more.

Further processes: {more["processes"]}; further temporary files: {more["temporary files"]}. The trace grows by
{disk["trace.jsonl"]:.0f} MiB per hour, `metrics.jsonl` by {disk["metrics.jsonl"]:.0f}, `train.log` by
{disk["train.log"]:.0f} and the checkpoints by {disk["checkpoints"]:.0f}. [growth.json](growth.json) has all figures.
"""
    rows = []
    for own in record["processes"]:
        growth = f"**{own['growth_mib']:+.1f}**" if own["process"] in above else f"{own['growth_mib']:+.1f}"
        memory = (f"{own['pss_mib']:.0f}", growth)
        rows.append((own["process"].rpartition(" ")[0], *memory, str(own["descriptors"]), str(own["threads"])))
    return f"{head}\n{markdown(('process', 'MiB', 'MiB in 8 hours', 'descriptors', 'threads'), rows)}"
