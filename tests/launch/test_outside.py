"""That the longest folder really has room is shown by the two nodes of `tests/e2e/test_nodes.py`."""

import contextlib
import re
import tempfile
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
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
    message = r"^HOME: nothing can be written to '/proc/.* Set HOME to a folder of yours"
    with pytest.raises(ConfigError, match=message) if is_refused else contextlib.nullcontext():
        require_home(environ)


def test_a_run_with_a_folder_of_its_own_has_a_short_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "long".ljust(LONGEST, "_")))
    run_trainer(script("import os; print(os.environ['RAY_TMPDIR'], os.environ['TMPDIR'])"), tmp_path)
    ray, usual = (tmp_path / "train.log").read_text().split()
    assert ray == usual
    assert re.fullmatch(rf"{SHORT}/agent_rl_\w{{8}}", ray)
