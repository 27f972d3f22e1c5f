"""Which files a program may read: the standard library, the declared packages with what they need, and little else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterable

from agent_rl.errors import ConfigError

__all__ = ["package_files", "readable_paths"]

_SYSTEM = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/zero", "/dev/urandom")


def package_files(packages: Iterable[str]) -> dict[str, str]:
    """Top-level files and directories of `packages` and the installed part of their requirements: name -> path.

    Raises:
        ConfigError: a declared package is not installed.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [(name, True) for name in packages]
    while waiting:
        name, declared = waiting.pop()
        if (key := re.sub(r"[-_.]+", "-", name).lower()) in seen:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if declared:
                raise ConfigError("packages", f"{name!r} is not installed", "Install it, or leave it out") from None
            continue  # a requirement for another system
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".pth") and top not in found:
                found[top] = os.path.realpath(str(distribution.locate_file(top)))
        for requirement in distribution.requires or ():
            name, _, marker = requirement.partition(";")
            if not re.search(r"\bextra\b", marker) and (match := re.match(r"[\w.-]+", name)):
                waiting.append((match.group(), False))
    return found


def readable_paths(files: Iterable[str]) -> list[str]:
    """The paths that Landlock or a namespace must leave readable, beside the scratch root's folders.

    Args:
        files: paths of the packages.
    """
    standard = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    multiarch = sysconfig.get_config_var("MULTIARCH")
    libraries = {f"/usr/lib/{multiarch}", f"/lib/{multiarch}", "/lib64", "/usr/lib64"}
    entries = {os.path.realpath(entry) for entry in sys.path if entry} - standard
    others = [path for path in entries if os.path.isdir(path) and not path.endswith("lib-dynload")]
    found: dict[str, None] = {}
    for path in (*sorted(standard), *sorted(libraries), *_SYSTEM):
        if os.path.exists(path):
            found |= dict.fromkeys(_without(os.path.realpath(path), others))
    for path in files:
        if not any(path.startswith(f"{seen}/") for seen in found):
            found[path] = None
    return list(found)


def _without(path: str, excluded: list[str]) -> list[str]:
    """`path`, or where it contains an excluded directory, its entries except that."""
    if path in excluded:
        return []
    if not any(other.startswith(f"{path}/") for other in excluded):
        return [path]
    return [kept for name in sorted(os.listdir(path)) for kept in _without(f"{path}/{name}", excluded)]
