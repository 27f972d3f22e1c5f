from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.doctor.checks import machine, reward_models
from agent_rl.doctor.finding import Status
from agent_rl.launch.training import TINY_CLASSIFIER
from tests.doctor.conftest import MakeCase

pytestmark = pytest.mark.trainer

MODELS = "agent_rl.reward.models"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    make_classifier(folder, make_tokenizer(CORPUS, folder, 512), hidden=48, layers=2)
    return folder


def found(make_case: MakeCase, model: dict[str, Any], *, on_cpu: bool = True) -> tuple[Status, str]:
    (finding,) = reward_models.models(make_case({f"{MODELS}.nice": model}, on_cpu=on_cpu))
    return finding.status, finding.text


def test_a_run_without_reward_models_has_no_findings(make_case: MakeCase) -> None:
    case = make_case()
    assert [*reward_models.models(case), *reward_models.shares(case)] == []


def test_a_classifier_that_is_here(make_case: MakeCase, classifier: Path) -> None:
    status, text = found(make_case, {"path": str(classifier)})
    assert status is Status.OK
    assert "LlamaForSequenceClassification" in text


def test_a_model_that_gives_no_score(make_case: MakeCase, tiny_model: Path) -> None:
    assert found(make_case, {"path": str(tiny_model)})[0] is Status.WARNING
    assert found(make_case, {"path": str(tiny_model), "kind": "generative"})[0] is Status.OK


def test_a_model_that_is_not_here(make_case: MakeCase, tmp_path: Path) -> None:
    assert found(make_case, {"path": "outputs/no_such_model"})[0] is Status.PROBLEM
    assert found(make_case, {"path": "some/model"})[0] is Status.SKIPPED
    assert found(make_case, {"path": TINY_CLASSIFIER})[0] is Status.SKIPPED
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    (tmp_path / "model.safetensors").write_bytes((100).to_bytes(8, "little") + b"{")
    assert found(make_case, {"path": str(tmp_path)})[0] is Status.PROBLEM


def test_verls_own_reward_model_passes(make_case: MakeCase, classifier: Path) -> None:
    keys = {"reward.reward_model.enable": True, "reward.reward_model.model_path": str(classifier)}
    (finding,) = reward_models.models(make_case(keys))
    assert finding.status is Status.OK


@pytest.mark.parametrize(
    ("shares", "status"), [((0.4, 0.4), Status.OK), ((0.5, 0.45), Status.WARNING), ((0.5, 0.5), Status.PROBLEM)]
)
def test_models_that_share_gpus_fit_there_together(
    make_case: MakeCase, shares: tuple[float, ...], status: Status
) -> None:
    models = {
        f"{MODELS}.m{number}": {"path": "a/b", "placement": "shared", "gpu_memory_utilization": share}
        for number, share in enumerate(shares)
    }
    own = {f"{MODELS}.own": {"path": "a/b", "gpu_memory_utilization": 0.9}}
    (finding,) = reward_models.shares(make_case({**models, **own}, on_cpu=False))
    assert finding.status is status
    assert list(reward_models.shares(make_case(models, on_cpu=True))) == []


def test_models_with_gpus_of_their_own_are_counted(make_case: MakeCase) -> None:
    models = {
        f"{MODELS}.a": {"path": "a/b", "n_gpus_per_node": 2},
        f"{MODELS}.b": {"path": "a/b", "placement": "shared"},
        "trainer.n_gpus_per_node": 6,
    }
    case = make_case(models)
    assert case.gpus_wanted == 8
    assert [finding.status for finding in machine.gpus_per_node(case)] == [Status.OK]
    case = make_case({**models, f"{MODELS}.c": {"path": "a/b"}})
    assert [finding.status for finding in machine.gpus_per_node(case)] == [Status.PROBLEM]
