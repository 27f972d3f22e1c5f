"""The variables of a run on GPUs are found in the wheels and on the machine, and what the user has set stays.

That the longest folder really has room for Ray's sockets is shown by the two nodes of `tests/e2e/test_nodes.py`.
"""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch import environment as module
from agent_rl.launch import training
from agent_rl.launch.command import trainer_command
from agent_rl.launch.environment import (
    LONGEST,
    LONGEST_OF_ALL,
    SHORT,
    cuda_home,
    gpu_environment,
    joins_ray,
    missing_parts,
    require_home,
    temporary_files,
)

BIN = str(Path(sys.executable).parent)
FITS, LONG = "/t".ljust(LONGEST, "_"), "/t".ljust(LONGEST + 1, "_")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NVIDIA's wheels as torch for CUDA 13 installs them, and no toolkit."""
    for name in ("lib/libcudart.so.13", "bin/nvcc"):
        file = tmp_path / "nvidia/cu13" / name
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(module, "_wheels", lambda: [tmp_path / "nvidia"])
    monkeypatch.setattr(module, "TOOLKITS", ())
    monkeypatch.setenv("CUDA_HOME", "")  # and is what it was after the test
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path / "nvidia/cu13"


def toolkit(folder: Path, version: int = 13000) -> Path:
    """A complete toolkit."""
    for name in (*module.PARTS, "include/cccl/nv/target"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch(mode=0o755)
    (folder / module.VERSION).write_text(f"#define CUDART_VERSION  {version}\n")
    return folder


def test_wheels_give_the_runtime_and_no_toolkit(wheels: Path) -> None:
    assert gpu_environment({"PATH": "/bin", "LD_LIBRARY_PATH": "/mine"}) == {
        "PATH": f"{BIN}:/bin",
        "LD_LIBRARY_PATH": f"{wheels}/lib:/mine",
    }
    assert cuda_home({"PATH": f"{wheels}/bin"}) is None


def test_what_is_set_stays_whatever_it_lacks(wheels: Path, tmp_path: Path) -> None:
    environ = {"PATH": f"/bin:{BIN}", "LD_LIBRARY_PATH": f"{wheels}/lib", "CUDA_PATH": str(tmp_path)}
    assert gpu_environment(environ) == {}
    assert cuda_home(environ) == tmp_path
    assert missing_parts(tmp_path) == [*module.PARTS, "include/nv/target"]  # the doctor names them


def test_the_newest_complete_toolkit_comes_before_the_path(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = {"PATH": f"{toolkit(tmp_path / 'mine')}/bin"}
    assert cuda_home(on_path) == tmp_path / "mine"
    monkeypatch.setattr(module, "TOOLKITS", (f"{tmp_path}/cuda-13*",))
    older, newer = toolkit(tmp_path / "cuda-13.0"), toolkit(tmp_path / "cuda-13.1")
    assert cuda_home(on_path) == newer
    (newer / "lib64/libcudart.so").unlink()
    assert cuda_home(on_path) == older


def test_a_wrapper_of_nvcc_and_another_version_are_not_toolkits(wheels: Path, tmp_path: Path) -> None:
    (wrapper := tmp_path / "local/bin/nvcc").parent.mkdir(parents=True)
    wrapper.touch(mode=0o755)
    assert cuda_home({"PATH": str(wrapper.parent)}) is None
    old = toolkit(tmp_path / "old", 12080)
    assert cuda_home({"PATH": f"{old}/bin"}) is None
    assert missing_parts(old) == ["version 13 (it is 12)"]


def test_a_dry_run_shows_them(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "")  # and is what it was after the test
    monkeypatch.setenv("TMPDIR", "/t".ljust(LONGEST + 1, "_"))
    _, notes = training.dry_run("recipes/gsm8k_calculator", ["trainer.n_gpus_per_node=4"])
    words = notes[-1].split()
    assert words[:2] == ["env", f"RAY_TMPDIR={SHORT}"]
    assert f"LD_LIBRARY_PATH={wheels}/lib:/mine" in words
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert not [word for word in training.dry_run("recipes/quickstart")[1][-1].split() if "LD_LIBRARY" in word]


def test_the_run_inherits_them_and_a_cluster_that_runs_is_told(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(training, "require_device", lambda: None)
    with pytest.raises(ConfigError, match=r"there is no .*parquet"):
        training.train("recipes/gsm8k_calculator", ["data.train_files=/nowhere/rows.parquet"])
    assert os.environ["LD_LIBRARY_PATH"] == f"{wheels}/lib:/mine"
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    told = [word for word in trainer_command("recipes/gsm8k_calculator") if "env_vars" in word]
    assert told == [f"++ray_kwargs.ray_init.runtime_env.env_vars.LD_LIBRARY_PATH='{wheels}/lib:/mine'"]


@pytest.mark.parametrize(("address", "joins"), [("", False), ("local", False), ("auto", True), ("head:6379", True)])
def test_only_a_named_cluster_is_joined(address: str, joins: bool) -> None:
    assert joins_ray({"RAY_ADDRESS": address}) is joins


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, {}),
        ({"TMPDIR": FITS}, {}),
        ({"TMPDIR": LONG}, {"RAY_TMPDIR": SHORT}),
        ({"TMPDIR": LONG, "RAY_TMPDIR": FITS}, {}),
        ({"TMPDIR": LONG, "RAY_ADDRESS": "host0:6379"}, {}),
    ],
)
def test_a_folder_without_room_for_the_sockets_of_ray_is_not_used(
    environ: dict[str, str], wanted: dict[str, str]
) -> None:
    assert temporary_files(environ) == wanted


def test_the_guide_says_how_long_it_may_be() -> None:
    assert f"`TMPDIR` longer than {LONGEST} bytes" in (Path(__file__).parents[2] / "docs/guides/nodes.md").read_text()


@pytest.mark.parametrize(("name", "most"), [("RAY_TMPDIR", LONGEST), ("TMPDIR", LONGEST_OF_ALL)])
def test_a_folder_that_is_too_long_is_named(name: str, most: int) -> None:
    problem = rf"^{name}: '/ä_+' is too long: .* Choose a path of at most {most} bytes, for example /tmp$"
    with pytest.raises(ConfigError, match=problem):
        temporary_files({name: "/ä".ljust(most, "_")})  # one letter has two bytes


@pytest.mark.parametrize(
    ("environ", "is_refused"),
    [
        ({"HOME": "/proc/1/none"}, True),
        ({"HOME": "/proc/1", "HF_HOME": "/tmp"}, True),
        ({"HOME": "/proc/1", "RAY_AUTH_TOKEN": "x"}, True),
        ({"HOME": "/tmp/new/deep"}, False),
        ({"HOME": "/proc/1", "HF_HOME": "/tmp", "RAY_AUTH_TOKEN": "x"}, False),
        ({"HOME": "/proc/1", "HF_HOME": "/tmp", "RAY_ADDRESS": "host0:6379"}, False),
    ],
)
def test_a_home_in_which_nothing_can_be_kept_is_refused_if_it_is_needed(
    environ: dict[str, str], is_refused: bool
) -> None:
    message = r"^HOME: nothing can be written to '/proc/.* Set HOME to one of your folders"
    with pytest.raises(ConfigError, match=message) if is_refused else contextlib.nullcontext():
        require_home(environ)
