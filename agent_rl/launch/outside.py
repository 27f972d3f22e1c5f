"""The folders outside a run's own in which its processes keep files: whether they can, before anything starts.

A batch system's TMPDIR is often too long for the sockets of Ray, and a container's user may have no home directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.launch.command import joins_ray

__all__ = ["LONGEST", "SHORT", "ray_folder", "require_home", "temporary_files"]

SOCKET = "/ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store.1"
"""Ray makes this below `RAY_TMPDIR`, or else `TMPDIR`; Linux allows 107 bytes."""
LONGEST = 107 - len(SOCKET)
"""Bytes of a folder that has room for it."""
LONGEST_OF_ALL = 107 - len("/pymp-00000000/listener-00000000")
"""The same for the sockets of SGLang and Python, which are in `TMPDIR`."""
SHORT = "/tmp"
"""Takes the place of a `TMPDIR` that is too long."""


def temporary_files(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`RAY_TMPDIR` for a run where `TMPDIR` has no room for Ray's sockets; empty: it has, or the user named another.

    Raises:
        ConfigError: a folder that the user has named is too long.
    """
    if joins_ray(environ):
        return {}
    named, usual = environ.get("RAY_TMPDIR"), environ.get("TMPDIR")
    for variable, folder, most in (("RAY_TMPDIR", named, LONGEST), ("TMPDIR", usual, LONGEST_OF_ALL)):
        if len(os.fsencode(folder or "")) > most:
            problem = f"{folder!r} is too long: the sockets of a run are in it, whose paths may have 107 bytes"
            raise ConfigError(variable, problem, f"Name a folder of at most {most} bytes, for example {SHORT}")
    folder = ray_folder(environ)
    return {} if folder == (named or usual or SHORT) else {"RAY_TMPDIR": folder}


def ray_folder(environ: Mapping[str, str]) -> str:
    """The folder of a Ray that the run starts: `TMPDIR` only if there is room in it."""
    usual = environ.get("TMPDIR") or SHORT
    return environ.get("RAY_TMPDIR") or (usual if len(os.fsencode(usual)) <= LONGEST else SHORT)


def require_home(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a home directory in which nothing can be kept, unless Ray's token and the caches are elsewhere.

    Raises:
        ConfigError: it is needed.
    """
    has_token = joins_ray(environ) or any(environ.get(f"RAY_AUTH_{name}") for name in ("TOKEN", "TOKEN_PATH", "MODE"))
    if has_token and environ.get("HF_HOME"):
        return
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    there = next(folder for folder in (home, *home.parents) if os.path.exists(folder))
    if not os.access(there, os.W_OK | os.X_OK):
        problem = f"nothing can be written to {str(home)!r}, where Ray keeps a token and datasets keeps rows"
        raise ConfigError("HOME", problem, "Set HOME to a folder of yours, for example HOME=$PWD")
