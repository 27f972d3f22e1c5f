"""A machine that has nothing but some packages: `python bare_machine.py HAVE FOLDER` makes an environment of them.

Its packages are links to those of the environment whose Python this is. What HAVE does not list cannot be imported, nor
what it lists in another version.
"""

from __future__ import annotations

import sys
import venv
from importlib import metadata
from pathlib import Path

from tests.gpu.pack import on_machine


def main(have: Path, folder: Path) -> None:
    """Make the environment."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name, version in on_machine(have.read_text()).items():
        found = metadata.distribution(name)
        if found.version != version:
            (site / name).mkdir()
            (site / name / "__init__.py").write_text(
                f"raise ImportError('{name} {version} is not the one that is wanted')"
            )
            (site / f"{name}-{version}.dist-info").mkdir()
            (site / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
            continue
        for file in found.files or ():
            source, link = Path(str(found.locate_file(file))), site / str(file)
            if not str(file).startswith("..") and source.is_file() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(source)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
