import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.data import write_parquet
from agent_rl.doctor.checks import reward
from agent_rl.launch.training import TINY_CLASSIFIER
from agent_rl.preflight.check import Status
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.verl_adapter import early_checks
from tests.doctor.conftest import MakeCase, only, refused

PATH, NAME = f"{CUSTOM_FUNCTION}.path", f"{CUSTOM_FUNCTION}.name"
MANAGER = "reward.reward_manager.name"


@pytest.mark.parametrize(
    "source",
    [
        "def score(data_source, solution_str, ground_truth, extra_info): return 1",
        "async def score(solution_str, ground_truth, **rest): return 1",
        "def score(data_sources, solution_strs, ground_truths, extra_infos): return [1]",
    ],
)
def test_a_users_reward_function_passes(make_case: MakeCase, tmp_path: Path, source: str) -> None:
    (tmp_path / "mine.py").write_text(f"{source}\n")
    finding = only(early_checks.reward_function(make_case({PATH: str(tmp_path / "mine.py"), NAME: "score"})))
    assert (finding.status, finding.text) == (Status.OK, f"score in {tmp_path / 'mine.py'}")


@pytest.mark.parametrize(
    ("source", "manager", "problem"),
    [
        ("def score(row): return 1", "trajectory", "score(row) cannot be called: nothing is known for row"),
        ("def other(): ...", "trajectory", "'score' cannot be loaded from "),
        ("x = 1\nimport no_such_module", "trajectory", "mine.py:2: ModuleNotFoundError"),
        ("def score(solution_strs): ...", "naive", "cannot be called by the manager 'naive'"),
        ("def score(solution_str): return solution_str.no", "trajectory", "mine.py:1: AttributeError"),
    ],
)
def test_a_users_reward_function_that_fails_is_refused(
    make_case: MakeCase, tmp_path: Path, source: str, manager: str, problem: str
) -> None:
    (tmp_path / "mine.py").write_text(f"{source}\n")
    keys = {PATH: str(tmp_path / "mine.py"), NAME: "score", MANAGER: manager}
    assert problem in refused(early_checks.reward_function(make_case(keys)))


def test_a_missing_reward_function_is_refused(make_case: MakeCase) -> None:
    assert not list(early_checks.reward_function(make_case()))
    assert "/no/such.py" in refused(early_checks.reward_function(make_case({PATH: "/no/such.py", NAME: "score"})))


def test_sources_that_verl_cannot_score(make_case: MakeCase, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert not list(reward.sources(make_case()))
    finding = only(reward.sources(make_case({MANAGER: "naive"})))
    assert finding.status is Status.PROBLEM
    assert "no scoring for 'gsm8k' (24 rows)" in finding.text
    write_parquet([{**row, "data_source": "openai/gsm8k"} for row in rows], tmp_path / "x.parquet")
    files = {key: str(tmp_path / "x.parquet") for key in ("data.train_files", "data.val_files")}
    assert only(reward.sources(make_case({MANAGER: "naive", **files}))).status is Status.OK


pytestmark = pytest.mark.trainer

MODELS = "agent_rl.reward.models"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    make_classifier(folder, make_tokenizer(CORPUS, folder, 512), hidden=48, layers=2)
    return folder


def found(make_case: MakeCase, model: dict[str, Any], *, on_cpu: bool = True) -> tuple[Status, str]:
    (finding,) = reward.models(make_case({f"{MODELS}.nice": model}, on_cpu=on_cpu))
    return finding.status, finding.text


def test_a_classifier_that_is_here(make_case: MakeCase, classifier: Path) -> None:
    status, text = found(make_case, {"path": str(classifier)})
    assert status is Status.OK
    assert "LlamaForSequenceClassification" in text


def test_a_model_that_is_not_here(make_case: MakeCase, tmp_path: Path) -> None:
    assert found(make_case, {"path": "some/model"})[0] is Status.SKIPPED
    assert found(make_case, {"path": TINY_CLASSIFIER})[0] is Status.SKIPPED
    offline = make_case({f"{MODELS}.nice": {"path": "some/model"}}, environ={"TRANSFORMERS_OFFLINE": "1"})
    (finding,) = reward.models(offline)
    assert (finding.status, finding.subject) == (Status.PROBLEM, "reward model nice")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    (tmp_path / "model.safetensors").write_bytes((100).to_bytes(8, "little") + b"{")
    assert found(make_case, {"path": str(tmp_path)})[0] is Status.PROBLEM


def test_verls_own_reward_model_passes(make_case: MakeCase, classifier: Path) -> None:
    keys = {"reward.reward_model.enable": True, "reward.reward_model.model_path": str(classifier)}
    (finding,) = reward.models(make_case(keys))
    assert finding.status is Status.OK
