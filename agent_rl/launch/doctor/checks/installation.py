"""Checks the installed packages against the metadata of verl and agent_rl, without importing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version

from agent_rl.launch.doctor.case import Case
from agent_rl.preflight.check import Finding, Needs, check, problem, warning
from agent_rl.verl_adapter import inspection
from agent_rl.verl_adapter.patches import VERL_VERSION

SHOWN = ("verl", "torch", "sglang", "transformers", "ray", "TransferQueue", "tensordict")
PLUGIN = "agent_rl.verl_adapter.plugin"
CPU_HELP = "Run make install"
GPU_HELP = "Run pip install 'agent-rl[sglang]'"
MANY = 10
"""Number of unmet requirements above which the remedy is to reinstall everything."""


@check("installation", needs=Needs.MACHINE)
def packages(case: Case) -> Iterator[Finding]:
    """Supported versions of verl and SGLang are installed, with all requirements for this platform."""
    everything = CPU_HELP if case.on_cpu else GPU_HELP
    versions = {name: version for name in SHOWN if (version := case.machine.version(name))}
    for name in ("verl", "sglang"):
        if name not in versions:
            yield problem("is not installed", everything, name)
    if (installed := versions.get("verl", VERL_VERSION)) != VERL_VERSION:
        text = f"{installed} is installed, but agent_rl requires {VERL_VERSION}"
        yield problem(text, f"Run pip install verl=={VERL_VERSION}", "verl")
    extras = {"agent-rl": {"", "train", *(["cpu"] if case.on_cpu else [])}, "verl": {""}}
    unmet = {name: each for by, chosen in extras.items() for name, each in _unmet(case, by, chosen).items()}
    if unmet:
        requirements = " ".join(f"'{name}{versions}'" for name, (_, versions) in sorted(unmet.items()))
        yield problem(_listed(unmet), f"Run pip install {requirements}" if len(unmet) <= MANY else everything)
    if "sglang" in versions and case.gpus and not case.on_cpu and (unmet := _unmet(case, "agent-rl", {"sglang"})):
        yield warning(_listed(unmet), f"{GPU_HELP} in a fresh environment", "sglang set")


@check("installation", "verl plugin", Needs.MACHINE)
def plugin(case: Case) -> Finding | None:
    """agent_rl is installed, so that verl finds its entry point in every Ray worker."""
    points = [each for each in metadata.entry_points(group="verl.plugins") if each.value == PLUGIN]
    policy, version = case.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip(), case.machine.version("agent-rl")
    if not points or version is None:
        text = "agent_rl is on the path but not installed: verl does not load it, so its loops and rewards do not exist"
        return problem(text, "Run pip install -e . in its folder")
    if policy.lower() != "auto" and "agent_rl" not in [name.strip().lower() for name in policy.split(",")]:
        text = f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading agent_rl"
        return problem(text, "Unset the variable, or add agent_rl to it")
    return None


@check("installation", needs=Needs.VERL)
def registration(case: Case) -> Finding | None:
    """Verl has loaded agent_rl's plugin; verl silently ignores a plugin that fails."""
    if inspection.is_registered():
        return None
    return problem("agent_rl could not register with verl", "Run python -c 'import verl' to see why")


def _listed(unmet: Mapping[str, tuple[str | None, str]]) -> str:
    packages = [f"{name}{wanted} ({version or 'absent'})" for name, (version, wanted) in sorted(unmet.items())]
    return f"{', '.join(packages)}: required, with the installed version in parentheses"


def _unmet(case: Case, by: str, extras: set[str]) -> dict[str, tuple[str | None, str]]:
    """Return the installed and the required version for each unmet requirement of a package with these extras."""
    try:
        lines = metadata.requires(by) or []
    except metadata.PackageNotFoundError:
        return {}
    unmet = {}
    for requirement in map(Requirement, lines):
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        if not applies or requirement.name.lower() in ("verl", "agent-rl"):
            continue
        version = case.machine.version(requirement.name)  # the version 2.13.0+cpu counts as 2.13.0
        if version is None or not requirement.specifier.contains(Version(version).public, prereleases=True):
            unmet[requirement.name] = (version, str(requirement.specifier))
    return unmet
