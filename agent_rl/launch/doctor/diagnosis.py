"""Limits each check's time and isolates it from other checks' failures; checks that use verl run in a child process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.machine import Machine
from agent_rl.launch.training import composed
from agent_rl.preflight.check import Check, Finding, Needs, Status, checks_at, group_order, reason, refusal
from agent_rl.settings.importing import import_all
from agent_rl.verl_adapter import inspection

LIMIT_S = 30.0
"""Time limit for a check, in seconds; building an index for a tool, or waiting for a silent server, may take longer."""
CHILD_LIMIT_S = 120.0
"""Time limit, in seconds, for the child process that imports verl."""


Tell = Callable[[str], None]


def all_checks() -> list[Check]:
    """Import the modules in `checks/`, and return all checks that the doctor runs, in the order of the table."""
    import_all("agent_rl.launch.doctor.checks")
    return checks_at("doctor")


def diagnose(
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    script: Path | None = None,
    tell: Tell = lambda text: None,
    machine: Machine | None = None,
) -> list[Finding]:
    """Check this machine and, with a recipe, the run that the recipe would start on this machine.

    Args:
        recipe: a folder with `config.yaml`; None means the machine and the installation only.
        overrides: hydra overrides, as for training.
        script: the user's entry point; the loops that it registers count as registered.
        tell: called with a description of the next action.
        machine: the machine that would run the recipe; None means this machine.

    Returns:
        The findings, in the order of the table; a problem is a finding, never an exception.
    """
    environ = dict(os.environ) if machine is None else machine.environ
    config, findings = None, list[Finding]()
    if recipe is not None:
        tell(f"composing the configuration of {recipe}")
        nodes = Case(environ=environ).nodes
        config, findings = _composed(recipe, overrides, nodes)
    case = Case(environ=environ, config=config, recipe=recipe, overrides=overrides, script=script, given=machine)
    if config is None:
        return [*run_checks(case, Needs.MACHINE, tell=tell), *findings]
    with ThreadPoolExecutor(1) as thread:
        answers = thread.submit(_with_verl, pickle.dumps(case), environ)
        findings += run_checks(case, Needs.MACHINE, Needs.CONFIG, tell=tell)
        tell("waiting for the checks that use verl, which another process imports")
        findings += answers.result()
    once: dict[object, Finding] = {}
    for finding in sorted(findings, key=lambda finding: group_order(finding.group)):
        # several checks may report the same problem
        once.setdefault((finding.text, finding.remedy) if finding.remedy else finding, finding)
    return list(once.values())


def run_checks(case: Case, *needs: Needs, tell: Tell = lambda text: None) -> list[Finding]:
    """Return the findings of all checks that have one of the given `needs`."""
    findings = []
    for check in all_checks():
        if check.needs in needs:
            tell(f"checking: {check.group}")
            findings += run_check(check, case)
    return findings


def run_check(check: Check, case: Case, limit_s: float = LIMIT_S) -> list[Finding]:
    """Return a check's findings; an exception or a timeout becomes a finding too."""
    findings: list[Finding] = []

    def run() -> None:
        try:
            findings.extend(check(case))
        except Exception as error:  # noqa: BLE001 - a broken check is reported and must not hide the others
            text = f"the check itself failed: {reason(error)}"
            findings.append(Finding(check.subject, Status.WARNING, text, "Report this bug and the recipe", check.group))

    thread = threading.Thread(target=run, daemon=True)  # a check that hangs must not prevent the doctor from exiting
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        text, remedy = f"not finished after {limit_s:g} seconds", "Check the servers, or wait for an index to be built"
        return [*findings, Finding(check.subject, Status.WARNING, text, remedy, check.group)]
    return findings


def _composed(
    recipe: str, overrides: Sequence[str], nodes: Nodes | None, removed: Sequence[str] = ()
) -> tuple[DictConfig | None, list[Finding]]:
    """Return the configuration and findings about it; wrong overrides are reported and ignored."""
    try:
        config, _ = composed(recipe, overrides, nodes)
    except ConfigError as error:
        finding = replace(refusal(error), subject="recipe", group="configuration")
        if not overrides:
            return None, [finding]
        wrong = [each for each in overrides if error.key in (each.lstrip("+~").partition("=")[0], each)] or overrides
        left, more = _composed(recipe, [each for each in overrides if each not in wrong], nodes, [*removed, *wrong])
        return left, [finding, *more]
    without = f"; the checks below ignore {' '.join(removed)}" if removed else ""
    return config, [Finding("recipe", Status.OK, f"{recipe} composes{without}", group="configuration")]


def _with_verl(pickled: bytes, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings of a process that imports verl; a crash of that process does not hide other findings."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from agent_rl.launch.doctor.diagnosis import answer; answer()"
    command = [sys.executable, "-c", program]
    variables = {"HF_HUB_OFFLINE": "1", **os.environ, **environ}  # keeps the checks from downloading missing models
    try:
        done = subprocess.run(
            command, input=pickled, capture_output=True, timeout=CHILD_LIMIT_S, env=variables, check=True
        )
        findings: list[Finding] = pickle.loads(done.stdout)
        return findings
    except subprocess.TimeoutExpired:
        text = f"verl's checks have not finished within {CHILD_LIMIT_S:g} seconds"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        text = f"verl cannot be imported: {lines[-1] if lines else error.returncode}"
    remedy = "Fix the installation: python -c 'import verl' shows what is wrong"
    return [Finding("verl", Status.PROBLEM, text, remedy, "installation")]


def answer() -> None:
    """Read a case from stdin, run the checks that need verl, and write their findings to stdout."""
    case: Case = pickle.load(sys.stdin.buffer)
    os.chdir(case.folder)
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # verl prints to stdout
        inspection.is_registered()  # imports verl first, in this thread, so that no check finds a half-loaded module
        pickle.dump(run_checks(case, Needs.VERL), output)
    os._exit(0)  # exits without waiting for verl's background threads
