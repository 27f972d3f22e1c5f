"""One word, one meaning, one class: the glossary's classes exist."""

import re

import pytest

from tests.docs.pages import exists, read

ROWS = re.findall(
    r"^\| ([\w -]+) \| (.+?) \| (?:`(agent_rl[\w.]+)`|verl)? ?\|$", read("docs/glossary.md"), re.MULTILINE
)


def test_words_are_in_order_and_once() -> None:
    words = [word for word, _, _ in ROWS if word not in ("word", "---")]
    assert len(words) > 40
    assert words == sorted(set(words))


@pytest.mark.trainer
@pytest.mark.parametrize(("word", "path"), [(word, path) for word, _, path in ROWS if path])
def test_a_word_has_its_class(word: str, path: str) -> None:
    assert exists(path), word
