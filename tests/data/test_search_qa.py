"""The forms of questions that need search, and the index of a corpus."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.conversion import run
from agent_rl.data.search_qa import SEARCH_QA, to_row
from agent_rl.errors import ConfigError

FORMS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"question": "who wrote faust", "answer": ["Goethe", "J. W. Goethe"]}, "nq", ["Goethe", "J. W. Goethe"]),
    (
        {"question": "who wrote faust?", "answer": {"value": "Goethe", "aliases": ["Goethe", "von Goethe"]}},
        "triviaqa",
        ["Goethe", "von Goethe"],
    ),
    ({"question": "who wrote faust", "answer": "Goethe", "context": {}, "level": "easy"}, "hotpotqa", ["Goethe"]),
    ({"question": "who wrote faust", "golden_answers": ["Goethe"], "data_source": "popqa"}, "popqa", ["Goethe"]),
]


@pytest.mark.parametrize(("example", "source", "answers"), FORMS)
def test_each_form_becomes_a_row(example: dict[str, Any], source: str, answers: list[str]) -> None:
    row = to_row(example, "test", 0)
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (source, answers)
    assert row["prompt"][0]["content"] == "who wrote faust?"


@pytest.mark.parametrize("answer", [[], [3], [""], None, {"aliases": ["a"]}])
def test_a_question_without_answers_is_refused(answer: Any) -> None:
    with pytest.raises(ConfigError):
        to_row({"question": "a?", "answer": answer}, "test", 0)


def test_the_index_of_a_corpus_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nq.jsonl").write_text(json.dumps(FORMS[0][0]))
    (tmp_path / "wiki.jsonl").write_text(json.dumps({"id": "1", "title": "Faust", "text": "By Goethe."}))
    arguments = ["--input", str(tmp_path / "nq.jsonl"), "--local_save_dir", str(tmp_path / "out")]
    run(SEARCH_QA, None, [*arguments, "--corpus", str(tmp_path / "wiki.jsonl")])
    assert "wiki.jsonl is ready" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if "wiki" in path.name and path.is_dir()]
    with pytest.raises(SystemExit):
        run(SEARCH_QA, None, [*arguments, "--corpus", "absent.jsonl"])
    assert "error: --corpus: there is no file absent.jsonl" in capsys.readouterr().err
