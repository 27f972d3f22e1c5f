"""Templates are checked when they are loaded, and values are filled in once."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.judge import PLACEHOLDERS
from agent_rl.rewards.judge.template import FOLDER, load_template

KNOWN = ("question", "answer", "rubric")


def load(folder: Path, text: str, default: str = "pointwise"):
    file = folder / "own.txt"
    file.write_text(text)
    return load_template(str(file), default, "a.template", KNOWN, [("answer",)])


@pytest.mark.parametrize("name", ["pointwise", "reference", "rubric"])
def test_ours_load(name: str) -> None:
    template = load_template(None, name, "k", PLACEHOLDERS, [("answer",)])
    assert template.system
    assert {"question", "answer"} <= template.names
    assert (name in template.names) == (name != "pointwise")


def test_every_file_is_packaged() -> None:
    project = (FOLDER.parents[3] / "pyproject.toml").read_text()
    assert '"agent_rl.rewards.judge" = ["templates/*.md"]' in project
    assert {path.suffix for path in FOLDER.iterdir()} == {".md"}


def test_one_message_or_two(tmp_path: Path) -> None:
    assert load(tmp_path, "Judge {answer}!").fill({"answer": "4"}) == ("", "Judge 4!")
    two = load(tmp_path, "[system]\nBe fair to {question}.\n\n[user]\nJudge {answer}!\n")
    assert two.fill({"answer": "4", "question": "q"}) == ("Be fair to q.", "Judge 4!")


def test_braces(tmp_path: Path) -> None:
    template = load(tmp_path, 'JSON: {"a": {}} {{answer}} {answer} }} {')
    assert template.names == {"answer"}
    assert template.fill({"answer": "{question} {{x}}"})[1] == 'JSON: {"a": {}} {answer} {question} {{x}} }} {'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{answr}", r"a\.template: .*own\.txt has the unknown placeholder \{answr\}\. Did you mean 'answer'"),
        ("{question}", r"a\.template: .*own\.txt has no \{answer\}"),
    ],
)
def test_wrong_placeholders(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.template: the template .*nothing\.md cannot be read"):
        load_template(str(tmp_path / "nothing.md"), "pointwise", "a.template", KNOWN, [("answer",)])
