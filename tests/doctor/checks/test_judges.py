"""A run that trains a judge: prompts as they are asked, truths, thoughts."""

from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import write_parquet
from agent_rl.data.preferences import to_row
from agent_rl.doctor.checks.data import PROMPT_TOKENS, lengths
from agent_rl.preflight.check import Status
from tests.doctor.conftest import ROOT, MakeCase, only, refused

pytestmark = pytest.mark.trainer

OWN = {
    "data.custom_cls.path": str(ROOT / "recipes/reasoning_rm_pointwise/dataset.py"),
    "data.custom_cls.name": "HelpfulnessDataset",
}


@pytest.fixture
def judged(tmp_path: Path) -> Any:
    """Keys of a run over rows with a score, or without."""

    def keys(rating: str = "helpfulness", **more: Any) -> dict[str, Any]:
        rows = [
            to_row({"prompt": f"q{n}?", "response": "a " * (n + 1), rating: n}, "train", n, data_source="rm")
            for n in range(4)
        ]
        write_parquet(rows, tmp_path / "rows.parquet")
        path = str(tmp_path / "rows.parquet")
        return {**OWN, "data.train_files": path, "data.val_files": path, PROMPT_TOKENS: 2000, **more}

    return keys


def test_the_prompts_are_those_that_are_asked(make_case: MakeCase, judged: Any) -> None:
    found = only(lengths(make_case(judged())))
    assert found.status is Status.OK, found
    assert only(lengths(make_case(judged(**{PROMPT_TOKENS: 20})))).status is Status.PROBLEM
    most = int(found.text.split()[2]) - 1
    assert only(lengths(make_case(judged(**{PROMPT_TOKENS: most})))).status is Status.WARNING
    left_out = only(lengths(make_case(judged(**{PROMPT_TOKENS: most, "data.filter_overlong_prompts": True}))))
    assert left_out.status is Status.OK
    assert "are left out" in left_out.text


def test_what_would_stop_the_run_is_found(make_case: MakeCase, judged: Any) -> None:
    assert "there is no truth to train a judge on" in refused(lengths(make_case(judged("correctness"))))
    twice = judged(**{"data.apply_chat_template_kwargs": {"enable_thinking": True}})
    assert "the model's chat template does not read it" in refused(lengths(make_case(twice)))
