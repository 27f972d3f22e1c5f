"""Runs the engine tests with the SGLang that GPU users have: `make test-engine SGLANG=0.5.13`.

The Makefile installs the extra `sglang` with its own pins into an environment, and its Python runs this: first the
tests of what depends on SGLang's release, then all that start the real engine. docs/support.md gets the result. The
exit status is 1 when a test has failed.
"""

import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/support.md"
OUT = ROOT / "outputs/test-engine"
OF_THE_RELEASE = (
    *(
        f"tests/cpu/test_{name}.py"
        for name in ("attention", "grammar", "sampling", "engine_forks", "switch", "patches")
    ),
    *(f"tests/verl_adapter/test_{name}.py" for name in ("no_flash_attention", "stop_strings")),
    "tests/gpu/test_faked_cuda.py",
    "tests/gpu/test_trial.py",
)
SELECTIONS = (("not benchmark", *OF_THE_RELEASE), ("engine and not recipes", "tests"))
"""Marks of a run of pytest, and its paths."""
PACKAGES = ("sglang", "torch", "transformers", "verl", "ray")
RUN = ("run", "steps", "current", "greatest")
"""Properties of a test that trains (tests/gpu/test_trial.py)."""


@dataclass
class Result:
    """What tests have shown: counts, ids of those that failed, and properties of training runs."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    runs: list[dict[str, str]] = field(default_factory=list)

    def add(self, report: Path) -> None:
        """A JUnit file of pytest."""
        for case in ET.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                self.failed.append(f"{case.get('classname')}::{case.get('name')}")
            elif "skipped" in kinds:
                self.skipped += 1
            else:
                self.passed += 1
            properties = {str(each.get("name")): str(each.get("value")) for each in case.iter("property")}
            if set(RUN) <= properties.keys():
                self.runs.append(properties)


def main(arguments: Sequence[str]) -> int:
    """Run pytest, with these arguments alone if there are any, else everything, which is written down."""
    if arguments:
        return pytest([*arguments], OUT / "only.xml")
    started, result = time.monotonic(), Result()
    for number, (marks, *paths) in enumerate(SELECTIONS, 1):
        report = OUT / f"{number}.xml"
        report.unlink(missing_ok=True)
        status = pytest(["-m", marks, *paths], report)
        if status not in (0, 1):  # interrupted, or nothing could be collected
            return status
        result.add(report)
    text = shown(result, (time.monotonic() - started) / 60)
    PAGE.write_text(with_result(PAGE.read_text(), text))
    print(f"{text}\n{PAGE.relative_to(ROOT)}")
    return int(bool(result.failed))


def pytest(arguments: list[str], report: Path) -> int:
    """The exit status of pytest, offline, one test after the other."""
    OUT.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    command += ["-o", "junit_family=legacy", "--basetemp", str(OUT / "tests"), "--timeout", "1200", *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = os.environ | {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def shown(result: Result, minutes: float) -> str:
    """Markdown: versions, date and counts, a table of the training runs, and what failed."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    counts = f"{result.passed} tests passed, {len(result.failed)} failed, {result.skipped} were skipped"
    lines = [
        f"{time.strftime('%Y-%m-%d')}: {versions}, Python {platform.python_version()}.",
        f"{counts}, in {minutes:.0f} minutes.",
        "",
        "| training run | steps | steps whose trajectories come from the trainer's current weights | greatest "
        "`training/rollout_probs_diff_mean` of these |",
        "| --- | ---: | ---: | ---: |",
    ]
    for run in result.runs:
        lines.append(f"| {run['run']} | {run['steps']} | {run['current']} | {float(run['greatest']):.1e} |")
    if result.failed:
        lines += ["", "Failed:", *(f"- `{name}`" for name in result.failed)]
    return "\n".join(lines)


def with_result(page: str, text: str) -> str:
    """The page with the result between its two marks."""
    return re.sub(r"(<!-- engine -->\n).*(\n<!-- end -->)", lambda marks: marks[1] + text + marks[2], page, flags=re.S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
