"""Every recipe composes for 1, 4 and 8 GPUs and two nodes, and the doctor finds no problem on such simulated nodes."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.data import write_parquet
from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.diagnosis import all_checks, diagnose, run_check
from agent_rl.launch.doctor.machine import Machine
from agent_rl.preflight.check import Needs, Status
from tests.launch.doctor.conftest import node_facts
from tests.support.rows import sum_row

ROOT = Path(__file__).parents[2]
PAGE = runpy.run_path(str(ROOT / "docs/gpu_pages.py"))
RECIPES = sorted(path.parent.name for path in (ROOT / "recipes").glob("*/size"))
NODES = {"1": 1, "4": 4, "8": 8, "2 x 8": 8}

OTHER_SHAPES = {
    name: {
        **PAGE["SHAPES"]["3B"], "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": mlp, "tie_word_embeddings": tied, "head_dim": 128,
    }
    for name, (hidden, layers, heads, kv, mlp, tied) in {
        "1.5B": (1536, 28, 12, 2, 8960, True),
        "4B": (2560, 36, 32, 8, 9728, True),
        "8B": (4096, 36, 32, 8, 12288, False),
    }.items()
}  # fmt: skip

pytestmark = pytest.mark.recipes


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides for rows that fill a batch of every recipe."""
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    write_parquet([sum_row(number) for number in range(1100)], path)
    return [f"data.{kind}_files={path}" for kind in ("train", "val")]


def told(recipe: str, node: str) -> list[str]:
    return [word for word in PAGE["LAYOUTS"][recipe].get(node, "").split() if word]


def facts_of(node: str) -> dict[str, Any]:
    environ = {"PATH": "/usr/bin"}
    if node == "2 x 8":
        environ |= {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "host0"}
    return {**node_facts(NODES[node]), "environ": environ}


def test_the_page_has_each_recipe() -> None:
    assert sorted(PAGE["LAYOUTS"]) == RECIPES


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_doctor_finds_no_problem(recipe: str, node: str, data: list[str], tmp_path: Path) -> None:
    facts = facts_of(node)
    config = compose(recipe, [*(["trainer.nnodes=2"] if node == "2 x 8" else []), *data, *told(recipe, node)])
    size = re.search(r"[\d.]+B", config.actor_rollout_ref.model.path)
    assert size is not None
    (tmp_path / "config.json").write_text(json.dumps({**PAGE["SHAPES"], **OTHER_SHAPES}[size[0]]))
    OmegaConf.update(config, "actor_rollout_ref.model.path", str(tmp_path))
    case = Case(environ=facts["environ"], folder=ROOT, config=config, given=Machine(facts["environ"], facts))
    groups = ("installation", "machine", "Ray", "configuration")
    checks = [each for each in all_checks() if each.group in groups and each.needs is not Needs.VERL]
    found = [finding for each in checks for finding in run_check(each, case)]
    wrong = [each for each in found if each.status is Status.PROBLEM and each.subject != "model"]  # has no weights here
    assert wrong == []
    assert {each.subject for each in found} >= {"driver", "memory, training", "memory, generating"}


def test_the_whole_doctor_with_the_facts_of_a_node(data: list[str], tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(json.dumps(facts_of("8")))
    machine = Machine.from_file(tmp_path / "node.json")
    found = diagnose("gsm8k_calculator", data, machine=machine)
    assert [each for each in found if each.status is Status.PROBLEM] == []
