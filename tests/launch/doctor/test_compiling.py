"""What keeps three lines from compiling is named by the compiler's own line; a compiler that hangs is stopped."""

import os
import shutil
from pathlib import Path

import pytest

from agent_rl.launch import environment
from agent_rl.launch.doctor import machine
from agent_rl.launch.doctor.machine import try_compilers
from agent_rl.launch.environment import cuda_home
from tests.launch.doctor.conftest import program


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with compilers that do as told, and a toolkit `home`."""
    monkeypatch.setattr(environment, "_wheels", lambda: [])
    for name in ("gcc", "c++", "home/bin/nvcc"):
        program(tmp_path / name, "exit 0")
    return tmp_path


def tried(folder: Path) -> dict[str, str]:
    program(folder / "ninja", "exit 0")
    return try_compilers(str(folder / "home"), {"PATH": f"{folder}:/bin", "CUDA_HOME": str(folder / "home")})


def test_each_failure_is_one_line_of_the_compiler(programs: Path) -> None:
    assert tried(programs) == {"ninja": "", "Python.h": "", "CUDA": ""}
    program(programs / "c++", "echo warning: x >&2; echo 'ld: cannot find -lcudart' >&2; echo collect2 >&2; exit 1")
    program(programs / "gcc", "echo 'a.c:1:10: fatal error: Python.h: No such file' >&2; exit 1")
    assert tried(programs) == {
        "ninja": "",
        "Python.h": "a.c:1:10: fatal error: Python.h: No such file",
        "CUDA": "ld: cannot find -lcudart",
    }
    (programs / "home/bin/nvcc").unlink()
    assert tried(programs)["CUDA"] == f"{programs}/home/bin/nvcc: No such file or directory"
    assert "CUDA" not in try_compilers("", {"PATH": str(programs)})


def test_python_h_is_compiled_by_the_compiler_that_triton_takes(programs: Path) -> None:
    path = {"PATH": str(programs)}
    assert try_compilers("", {**path, "CC": "icx"})["Python.h"] == "icx: No such file or directory"
    (programs / "gcc").unlink()
    assert try_compilers("", path)["Python.h"] == "clang: No such file or directory"
    program(programs / "clang", "exit 0")
    assert try_compilers("", path)["Python.h"] == ""


def test_a_compiler_that_hangs_is_stopped(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "COMPILERS_S", 0.3)
    program(programs / "home/bin/nvcc", "exec sleep 30")
    assert tried(programs)["CUDA"].startswith("nvcc was stopped after")


@pytest.mark.slow
@pytest.mark.skipif(not (cuda_home({}) and shutil.which("c++")), reason="there is no CUDA toolkit of version 13")
def test_a_real_toolkit_compiles_and_links_where_a_wrapper_on_the_path_does_not() -> None:
    home = cuda_home({})
    assert set(try_compilers(str(home), os.environ).values()) == {""}
    wrapper = shutil.which("nvcc")
    if wrapper and not Path(wrapper).resolve().is_relative_to(Path(str(home)).resolve()):
        assert "-lcudart" in try_compilers(str(Path(wrapper).parents[1]), os.environ)["CUDA"]
