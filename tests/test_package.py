"""What users import: short names that load only what they need."""

import subprocess
import sys

import pytest

import agent_rl

HEAVY = {"pandas", "torch", "verl", "ray", "transformers"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_alone_loads_nothing_else():
    loaded = loaded_by("import agent_rl")
    assert not {name for name in loaded if name.startswith("agent_rl.")}
    assert not loaded & {*HEAVY, "pydantic", "omegaconf"}


def test_the_names_for_light_code_load_neither_torch_nor_verl():
    names = "Agent, Component, Hooks, Reply, Tool, User, __version__, read_trace, register_agent_loop"
    assert not loaded_by(f"from agent_rl import {names}") & HEAVY


@pytest.mark.trainer
def test_every_public_name_can_be_imported():
    names, loop = ", ".join(agent_rl.__all__), "ReactAgentLoop"
    checks = f"assert {loop}.agent == 'react_agent' and issubclass({loop}, EpisodeAgentLoop)"
    assert "verl" in loaded_by(f"from agent_rl import {names}; {checks}")  # apart from what other tests have imported
    with pytest.raises(AttributeError, match="nothing"):
        _ = agent_rl.nothing
