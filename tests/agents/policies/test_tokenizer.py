"""A model's tokenizer with its template, or an error that names what to give."""

import shutil
from pathlib import Path

import pytest

from agent_rl.agents.policies.tokenizer import load_tokenizer
from agent_rl.errors import ConfigError

pytestmark = pytest.mark.trainer

MODEL = Path(__file__).parents[3] / "recipes/quickstart/model"


def test_a_folder_gives_its_tokenizer() -> None:
    assert load_tokenizer(str(MODEL), "--model").chat_template


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--model: there is no tokenizer in .*Hub"):
        load_tokenizer(str(tmp_path), "--model")


def test_a_base_model_has_no_template(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path / "base", ignore=shutil.ignore_patterns("chat_template*"))
    config = tmp_path / "base/tokenizer_config.json"
    config.write_text(config.read_text().replace('"chat_template"', '"another"'))
    with pytest.raises(ConfigError, match="has no chat template"):
        load_tokenizer(str(tmp_path / "base"), "--tokenizer")
