"""That the longest folder really has room is shown by the two nodes of `tests/e2e/test_nodes.py`."""

import re
import tempfile
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch import training
from agent_rl.launch.outside import LONGEST, LONGEST_OF_ALL, SHORT, require_home, temporary_files
from agent_rl.launch.process import run_trainer
from tests.launch.test_process import script

FITS, LONG = "/t".ljust(LONGEST, "_"), "/t".ljust(LONGEST + 1, "_")


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
    assert f"`TMPDIR` of more than {LONGEST} bytes" in (Path(__file__).parents[2] / "docs/guides/nodes.md").read_text()


@pytest.mark.parametrize(("name", "most"), [("RAY_TMPDIR", LONGEST), ("TMPDIR", LONGEST_OF_ALL)])
def test_a_folder_that_is_too_long_is_named(name: str, most: int) -> None:
    problem = rf"^{name}: '/ä_+' is too long: .* Name a folder of at most {most} bytes, for example /tmp$"
    with pytest.raises(ConfigError, match=problem):
        temporary_files({name: "/ä".ljust(most, "_")})  # one letter has two bytes


def test_a_dry_run_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("RAY_TMPDIR", "")  # and is what it was after the test
    monkeypatch.setenv("TMPDIR", LONG)
    assert training.dry_run("recipes/quickstart")[1][-1].startswith(f"env RAY_TMPDIR={SHORT} ")


@pytest.mark.parametrize(
    "environ",
    [{"HOME": "/proc/1"}, {"HOME": "/proc/1/none"}, {"HOME": "/proc/1", "HF_HOME": "/tmp"},
     {"HOME": "/proc/1", "RAY_AUTH_TOKEN": "x"}],
)  # fmt: skip
def test_a_home_in_which_nothing_can_be_kept_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^HOME: nothing can be written to '/proc/.* Set HOME to a folder of yours"):
        require_home(environ)


@pytest.mark.parametrize(
    "environ",
    [{"HOME": "/tmp/new/deep"}, {"HOME": "/proc/1", "HF_HOME": "/tmp", "RAY_AUTH_TOKEN": "x"},
     {"HOME": "/proc/1", "HF_HOME": "/tmp", "RAY_ADDRESS": "host0:6379"}],
)  # fmt: skip
def test_a_home_that_is_there_or_is_not_needed(environ: dict[str, str]) -> None:
    require_home(environ)


def test_a_run_with_a_folder_of_its_own_has_a_short_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "long".ljust(LONGEST, "_")))
    run_trainer(script("import os; print(os.environ['RAY_TMPDIR'], os.environ['TMPDIR'])"), tmp_path)
    ray, usual = (tmp_path / "train.log").read_text().split()
    assert ray == usual
    assert re.fullmatch(rf"{SHORT}/agent_rl_\w{{8}}", ray)
