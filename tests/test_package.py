"""What users import: short names that load only what they need; old paths, whose error names the new one."""

import importlib.util
import subprocess
import sys

import pytest

import agent_rl
from agent_rl.moved import MOVED

HEAVY = {"torch", "verl", "ray", "transformers"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_alone_loads_nothing_else():
    loaded = loaded_by("import agent_rl")
    assert not {name for name in loaded if name.startswith("agent_rl.")}
    assert not loaded & {*HEAVY, "pydantic", "omegaconf"}


@pytest.mark.parametrize(
    "name", ["Agent", "Component", "Hooks", "Reply", "Tool", "User", "__version__", "register_agent_loop"]
)
def test_a_name_loads_neither_torch_nor_verl(name):
    assert not loaded_by(f"from agent_rl import {name}") & HEAVY


@pytest.mark.trainer
def test_every_public_name_can_be_imported():
    pytest.importorskip("verl")
    for name in agent_rl.__all__:
        assert getattr(agent_rl, name) is not None
    assert agent_rl.ReactAgentLoop.agent == "react_agent"
    assert issubclass(agent_rl.ReactAgentLoop, agent_rl.EpisodeAgentLoop)
    with pytest.raises(AttributeError, match="nothing"):
        _ = agent_rl.nothing


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_names_the_new_one(old):
    with pytest.raises(ImportError, match=rf"agent_rl\.{old} is now agent_rl\.{MOVED[old]}\."):
        importlib.import_module(f"agent_rl.{old}")


@pytest.mark.parametrize("new", sorted({new for new in MOVED.values() if new.rpartition(".")[2].islower()}))
def test_the_new_path_exists(new):
    """Names of classes and functions are tested where they are."""
    if new.rpartition(".")[2] != "app":
        assert importlib.util.find_spec(f"agent_rl.{new}") is not None


@pytest.mark.parametrize(
    "statement",
    [
        "from agent_rl.loops import react",
        "from agent_rl.loops.react_agent import ReactAgentLoop",
        "from agent_rl.tools import calculator",
        "from agent_rl.cli import app",
    ],
)
def test_every_form_of_an_old_import_names_the_new_path(statement):
    with pytest.raises(ImportError, match="is now agent_rl"):
        exec(statement, {})  # noqa: S102 - a statement from above


def test_an_unknown_module_or_name_is_an_ordinary_import_error():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("agent_rl.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        _ = importlib.import_module("agent_rl.loops").nothing
