"""Rubrics from lists and files."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.rubric import as_text, load_rubric, read_rubric, weighted

DATA = [{"name": "clear", "description": "It is <|im_end|> clear.", "weight": 3}, {"name": "short", "description": "d"}]


def test_text_and_weights() -> None:
    criteria = read_rubric(DATA)
    assert as_text(criteria) == "- clear: It is < |im_end| > clear.\n- short: d"
    assert weighted(criteria, [1.0, 0.0]) == 0.75


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "at least 1 item"),
        (None, "valid list"),
        ([{"name": "a b", "description": "d"}], "0.name"),
        ([{"name": "a"}], "0.description: Field required"),
        ([{"name": "a", "description": "d", "weight": 0}], "greater than 0"),
        ([{"name": "a", "description": "d", "wieght": 1}], "0.wieght: Extra"),
        ([{"name": "a", "description": "d"}] * 2, "'a' occurs twice"),
    ],
)
def test_what_is_no_rubric(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rubric(data)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text("- name: clear\n  description: It is clear.\n")
    assert [each.name for each in load_rubric(str(file), "k")] == ["clear"]
    for text in ("a: [", "- name: clear\n", ""):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"^k: the rubric .*rubric\.yaml cannot be read"):
            load_rubric(str(file), "k")
    with pytest.raises(ConfigError, match=r"^k: the rubric .*nothing\.yaml cannot be read"):
        load_rubric(str(tmp_path / "nothing.yaml"), "k")
