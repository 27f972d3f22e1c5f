"""What the tests cost, in CPU-seconds: `python tests/support/cost.py [options] [pytest's arguments]`.

The run is a child of this program, which adopts every process that the tests leave behind (`PR_SET_CHILD_SUBREAPER`)
and waits for it. The total is therefore that of all processes of the run, also of Ray, engines and sandboxes that
detach themselves. A process whose parent does not wait for it and ignores its end is not counted.

The share of a file (with the fixtures that its tests are the first to need, or the last to use) is what its pytest
process and the children that were waited for have used meanwhile; processes left behind are the rest of the total.
"""

import argparse
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "tests/README.md"
FOLDER = "AGENT_RL_TEST_COSTS"
"""Names the folder to which pytest's processes write what each test cost."""
TOLERANCE = 1.25
SLOWEST = 20
USUAL_LOOP_S = 0.092
"""Seconds of the fixed loop on the machine for which totals are compared."""
PR_SET_CHILD_SUBREAPER = 36


class Recorder:
    """Writes a line for each test: its id, and the CPU-seconds and wall seconds from its set-up to its teardown."""

    def __init__(self, folder: Path) -> None:
        self.file = open(folder / f"{os.getpid()}.jsonl", "w", buffering=1)  # noqa: SIM115 (open as long as pytest runs)
        self.before = (0.0, 0.0)

    def pytest_runtest_logstart(self) -> None:
        self.before = (used(os.times()), time.monotonic())

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        cpu, wall = used(os.times()) - self.before[0], time.monotonic() - self.before[1]
        self.file.write(json.dumps({"test": nodeid, "cpu": cpu, "wall": wall}) + "\n")


def used(times: Any) -> float:
    """CPU-seconds of a process and of the children that it has waited for."""
    return float(times.user + times.system + times.children_user + times.children_system)


def main() -> int:
    """Run pytest, print what it cost, and fail when that is more than tests/README.md allows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when the run needs more than the recorded budget")
    parser.add_argument("--write", action="store_true", help="write total and dearest files to tests/README.md")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs/costs.json")
    options, arguments = parser.parse_known_args()
    folder = options.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    started, speed = time.monotonic(), seconds_of_a_fixed_loop()
    status = run([sys.executable, "-m", "pytest", *arguments], folder)
    tests = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    costs = {
        "cpu": used_by_children(),
        "wall": time.monotonic() - started,
        "loop": speed,
        "tests": sorted(tests, key=lambda test: -float(test["cpu"])),
    }
    options.out.write_text(json.dumps(costs, indent=1))
    print(f"{costs['cpu']:.0f} CPU-seconds in {costs['wall']:.0f} s; by test: {options.out}")
    if options.write and status == 0:
        README.write_text(with_table(README.read_text(), costs))
    if options.check and status == 0:
        return within_budget(costs, README.read_text())
    return status


def run(command: list[str], folder: Path) -> int:
    """The exit status; what the run has left behind has ended then."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    env = {**os.environ, FOLDER: str(folder)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of processes compiles this package again
    child = subprocess.Popen(command, cwd=ROOT, env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest gets it as well, and ends in its own way
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = None
    while status is None:
        pid, ended, _ = os.wait4(-1, 0)
        if pid == child.pid:
            child.returncode = status = os.waitstatus_to_exitcode(ended)
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, path.read_text().split()):
            print(f"left by the tests: {Path(f'/proc/{pid}/cmdline').read_text()[:200]!r}")
            os.kill(pid, signal.SIGKILL)
            os.wait4(pid, 0)
    return status


def used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of_a_fixed_loop() -> float:
    """How fast the machine is: the budget is for one on which this takes as long as it says."""

    def once() -> float:
        before = time.process_time()
        sum(number * number % 7 for number in range(2_000_000))
        return time.process_time() - before

    return min(once() for _ in range(3))


def with_table(text: str, costs: dict[str, Any]) -> str:
    """The README with the figures of this run between its two marks."""
    files: Counter[str] = Counter()
    for test in costs["tests"]:
        files[test["test"].split("::")[0]] += test["cpu"]
    files["(processes left behind)"] = costs["cpu"] - sum(files.values())
    usual = costs["cpu"] * USUAL_LOOP_S / costs["loop"]
    lines = [
        f"Total: {costs['cpu']:.0f} CPU-seconds, {costs['wall']:.0f} s (fixed loop: {costs['loop']:.3f} s); "
        f"{usual:.0f} CPU-seconds where the loop takes {USUAL_LOOP_S} s.",
        "",
        "| CPU-seconds | file |",
        "| ---: | --- |",
        *(f"| {cpu:.1f} | `{name}` |" for name, cpu in files.most_common(SLOWEST)),
    ]
    table = "\n".join(lines)
    return re.sub(r"(<!-- costs -->\n).*(\n<!-- end -->)", lambda found: found[1] + table + found[2], text, flags=re.S)


def within_budget(costs: dict[str, Any], text: str) -> int:
    """1 when the run needed more than the README's total and a quarter, on a machine as fast as this."""
    recorded = re.search(r"Total: (\d+) CPU-seconds.*fixed loop: ([\d.]+) s", text)
    if recorded is None:
        print("tests/README.md has no total of CPU-seconds yet: `make test-costs` records this machine's")
        return 0
    slower = max(1.0, costs["loop"] / float(recorded[2]))
    limit = float(recorded[1]) * slower * TOLERANCE
    if costs["cpu"] <= limit:
        return 0
    print(
        f"the tests needed {costs['cpu']:.0f} CPU-seconds, {limit:.0f} are allowed (tests/README.md). "
        "Make them cheaper, or record the new total with `make test-costs`"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
