"""Runs the checks: each with a time limit, no failure hides another check, and those that need verl run in a child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from agent_rl.doctor.case import Case
from agent_rl.doctor.check import GROUPS, Check, Finding, Needs, all_checks, ok, problem, reason, skipped, warning
from agent_rl.doctor.machine import Machine
from agent_rl.errors import ConfigError, FatalError
from agent_rl.launch.composition import compose

__all__ = ["diagnose", "run_check", "run_checks"]

LIMIT_S = 30.0
"""Seconds of one check; an index that a tool builds, or a silent server, may take longer."""
CHILD_LIMIT_S = 120.0
"""Seconds of the child process, which imports verl."""


Tell = Callable[[str], None]


def diagnose(
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    script: Path | None = None,
    tell: Tell = lambda text: None,
    machine: Machine | None = None,
) -> list[Finding]:
    """Check this machine and, with a recipe, the run that it would start here.

    Args:
        recipe: a folder with `config.yaml`; None: the machine and the installation only.
        overrides: hydra overrides, as for training.
        script: the user's own entry point; the loops that it registers count as registered.
        tell: is called with what is done next.
        machine: on which the run would be; None: this one.

    Returns:
        The findings, in the order of the table; a problem is a finding, never an exception.
    """
    environ = dict(os.environ) if machine is None else machine.environ
    if recipe is None:
        return run_checks(Case(environ=environ, script=script, given=machine), Needs.MACHINE, tell=tell)
    tell(f"composing the configuration of {recipe}")
    nodes = Case(environ=environ).nodes
    config, composed = _composed(recipe, [*([f"trainer.nnodes={nodes.count}"] if nodes else []), *overrides])
    case = Case(environ=environ, config=config, recipe=recipe, overrides=overrides, script=script, given=machine)
    if config is None:
        groups = dict.fromkeys(check.group for check in all_checks() if check.needs is not Needs.MACHINE)
        text = f"{', '.join(groups)}: they need the composed configuration"
        rest = replace(skipped(text, subject="the rest"), group="configuration")
        return [*run_checks(case, Needs.MACHINE, tell=tell), *composed, rest]
    child = _Child(case)
    own = run_checks(case, Needs.MACHINE, Needs.CONFIG, tell=tell)
    tell("waiting for the checks with verl, which another process imports")
    order = list(dict.fromkeys([*GROUPS, *(check.group for check in all_checks())]))
    found = sorted([*composed, *own, *child.findings()], key=lambda finding: order.index(finding.group))
    # verl's validation repeats some findings of other checks
    texts = [finding.text for finding in found if finding.subject != "validation"]
    return [each for each in found if each.subject != "validation" or not any(t.endswith(each.text) for t in texts)]


def run_checks(case: Case, *needs: Needs, tell: Tell = lambda text: None) -> list[Finding]:
    """The findings of all checks with these needs."""
    found = []
    for check in all_checks():
        if check.needs in needs:
            tell(f"checking: {check.group}")
            found += run_check(check, case)
    return found


def run_check(check: Check, case: Case, limit_s: float = LIMIT_S) -> list[Finding]:
    """One check's findings; an exception or a timeout of the check becomes a finding."""
    found: list[Finding] = []

    def run() -> None:
        try:
            found.extend(check.run(case))
        except ConfigError as error:
            found.append(problem(f"{error.key}: {error.problem}", error.remedy, check.name))
        except FatalError as error:
            found.append(problem(str(error), "", check.name))
        except Exception as error:  # noqa: BLE001 - goes into the table: one broken check must not hide the others
            text = f"the check itself failed: {reason(error)}"
            found.append(warning(text, "Report it, with the recipe", check.name))

    thread = threading.Thread(target=run, daemon=True)  # one that hangs does not keep the doctor from ending
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        text = f"not finished after {limit_s:g} seconds"
        found = [*found, warning(text, "A server does not answer, or an index is being built", check.name)]
    return [replace(finding, group=check.group) for finding in found]


def _composed(recipe: str, overrides: Sequence[str]) -> tuple[DictConfig | None, list[Finding]]:
    """The configuration and findings about it; a wrong override is reported and left out, and the rest is checked."""
    found: list[Finding] = []
    left, config = list(overrides), None
    while config is None:
        try:
            config = compose(recipe, left)
        except ConfigError as error:
            found.append(problem(f"{error.key}: {error.problem}", error.remedy, "recipe"))
            if not left:
                break
            blamed = [each for each in left if error.key in (each.lstrip("+~").partition("=")[0], each)]
            left = [each for each in left if each not in (blamed or left)]
    if config is not None:
        removed = [each for each in overrides if each not in left]
        without = f"; without {' '.join(removed)} for what follows" if removed else ""
        found.append(ok(f"{recipe} composes{without}", "recipe"))
    return config, [replace(finding, group="configuration") for finding in found]


class _Child:
    """The process that imports verl, started before the other checks run."""

    def __init__(self, case: Case) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="agent_rl_doctor_")
        config, self._answer, self._log = (Path(self._folder.name) / name for name in ("config", "answer", "log"))
        config.write_text(OmegaConf.to_yaml(case.config), encoding="utf-8")
        path = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agent_rl.doctor.child", str(config), str(self._answer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=case.folder,
                env={**self._environ(case), "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, path)))},
            )

    @staticmethod
    def _environ(case: Case) -> Mapping[str, str]:
        """What verl is imported with: on this machine, whichever the run is for."""
        return case.environ if case.given is None else {**os.environ, **case.environ}

    def findings(self) -> list[Finding]:
        """The findings of the child, once it has ended."""
        try:
            self._process.wait(CHILD_LIMIT_S)
            return [Finding.from_dict(each) for each in json.loads(self._answer.read_text(encoding="utf-8"))]
        except subprocess.TimeoutExpired:
            text = f"it has not answered within {CHILD_LIMIT_S:g} seconds"
        except (OSError, ValueError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            text = f"it cannot be imported: {lines[-1] if lines else self._process.returncode}"
        finally:
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()
        found = problem(text, "Fix the installation: python -c 'import verl' shows what is wrong", "verl")
        return [replace(found, group="installation")]
