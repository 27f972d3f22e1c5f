"""A service whose rules can be told to be slow or to fail, by what is to be judged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rewards.service.process import Service

RULES = '''
"""1 for the right answer; some answers are orders."""

import time

from agent_rl.errors import UnscoredError


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "broken":
        raise KeyError("mine")
    if solution_str == "away":
        raise UnscoredError("the sandbox is away")
    if solution_str == "nan":
        return float("nan")
    if solution_str.startswith("sleep "):
        time.sleep(float(solution_str.split()[1]))
    return {"score": float(solution_str == ground_truth), "length": len(solution_str)}
'''


@pytest.fixture(scope="session")
def service_yaml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    (folder / "my_rules.py").write_text(RULES)
    (folder / "service.yaml").write_text("rules_file: my_rules.py\n")
    return folder / "service.yaml"


@pytest.fixture(scope="module")
def service(service_yaml: Path) -> Iterator[Service]:
    with Service(service_yaml) as running:
        yield running
