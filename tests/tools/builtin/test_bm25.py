"""The BM25 index: what it finds, and that many processes can share it."""

import json
import os
import subprocess
import sys

import pytest

from agent_rl.tools.builtin import _bm25 as bm25
from agent_rl.tools.builtin._bm25 import open_index, read_document, tokenize

ROWS = [
    {"id": "a", "contents": '"Faust"\nFaust is a tragic play by Johann Wolfgang von Goethe.'},
    {"id": "b", "title": "Hamlet", "text": "Hamlet is a tragedy by William Shakespeare."},
    {"id": 3, "contents": "A document without a title about coffee at the café in Zürich."},
    {"id": "d", "title": "北京", "text": "北京大学在中国的首都。"},
    {"contents": "हिन्दी\nहिन्दी भारत की एक भाषा है"},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n", encoding="utf-8")
    return path


def found(index, query, top_k=3):
    return [hit.id for hit in index.search(query, top_k)]


def test_documents_come_back_whole(corpus):
    index = open_index(corpus)
    assert len(index) == 5
    (hit,) = index.search("who wrote FAUST?", 1)
    assert (hit.id, hit.title) == ("a", '"Faust"')
    assert hit.text == "Faust is a tragic play by Johann Wolfgang von Goethe."
    assert hit.score > 0


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("Shakespeare tragedy", ["b"]),
        ("CAFE zurich", ["3"]),
        ("北京大学", ["d"]),
        ("भाषा", ["4"]),  # line 4 has no id: its number
        ("nothing of this kind", []),
        ("goethe shakespeare", ["b", "a"]),  # the shorter document first
        ("", []),
        ("?!", []),
        ("a", ["a", "3", "b"]),  # only stop words: then they count
    ],
)
def test_documents_are_found_by_their_words(corpus, query, ids):
    index = open_index(corpus)
    assert sorted(found(index, query)) == sorted(ids)
    scores = [hit.score for hit in index.search(query, 10)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Café's Menu", ["the", "cafe", "s", "menu"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("snake_case x1", ["snake", "case", "x1"]),
        ("北京大学 A 京", ["北京", "京大", "大学", "a", "京"]),
        ("한국어", ["한국", "국어"]),
        ("がぎ", ["がぎ"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("العَرَبِيَّة", ["العربية"]),
        ("ПРИВЕТ Ёлка", ["привет", "елка"]),
        ("\u00ad\x00 \ud800 \U0001f600 --", []),
        ("ﬁne ①", ["fine", "1"]),
    ],
)
def test_text_is_split_into_normalized_words(text, words):
    assert tokenize(text) == words


def test_the_index_is_built_once_and_again_for_another_corpus(corpus, monkeypatch):
    builds = []
    build = bm25._build
    monkeypatch.setattr(bm25, "_build", lambda *args: (builds.append(args), build(*args)))
    open_index(corpus)
    assert found(open_index(corpus), "faust") == ["a"]
    assert len(builds) == 1
    with corpus.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "new", "contents": "Egmont"}) + "\n")
    assert found(open_index(corpus), "egmont") == ["new"]
    assert len(builds) == 2


def test_the_index_may_lie_elsewhere(corpus, tmp_path, monkeypatch):
    assert found(open_index(corpus, tmp_path / "deep" / "indexes"), "faust") == ["a"]
    assert not list(tmp_path.glob("corpus.jsonl.bm25*"))
    assert list((tmp_path / "deep" / "indexes").glob("corpus.jsonl.bm25*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # the corpus's folder cannot be written
    open_index(corpus)
    assert list((tmp_path / "cache" / "agent_rl" / "search").glob("corpus.jsonl.bm25*"))


def test_processes_that_start_at_once_build_one_index(corpus):
    with corpus.open("a", encoding="utf-8") as file:
        for number in range(3000):
            file.write(json.dumps({"id": str(number), "contents": f"Page {number}\nword{number} and others"}) + "\n")
    code = """
import logging, sys
from agent_rl.tools.builtin._bm25 import open_index
logging.basicConfig(level=logging.INFO, format="%(message)s")
print([hit.id for hit in open_index(sys.argv[1]).search("word1234 faust", 3)])
"""
    command = [sys.executable, "-c", code, str(corpus)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results = [process.communicate(timeout=120) for process in running]
    assert {output for output, _ in results} == {"['a', '1234']\n"}
    assert sum(errors.count("building the search index") for _, errors in results) == 1
    assert not list(corpus.parent.glob(".corpus.jsonl*"))  # nothing half-built is left


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no document that contains a word"),
        (b'{"id": "1", "contents": "--"}\n', "no document that contains a word"),
        (b'{"id": "1", "contents": "a"}\n\n{"id":\n', "corpus.jsonl, line 3: Expecting value"),
        (b'{"id": "1"}\n', "line 1: expected {"),
        (b'{"id": "1", "contents": 5}\n', "line 1: expected {"),
        (b'["text"]\n', "line 1: expected {"),
        (b'{"contents": "\xff"}\n', "line 1: 'utf-8' codec"),
    ],
)
def test_a_corpus_that_cannot_be_read(tmp_path, content, text):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"corpus\.jsonl") as caught:
        open_index(path)
    assert text in str(caught.value)
    assert not list(tmp_path.glob("*.bm25-*[!k]"))  # no index, only the lock
    with pytest.raises(ValueError, match="there is no file"):
        open_index(tmp_path / "missing.jsonl")


def test_a_build_that_fails_leaves_nothing(corpus, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(bm25.np, "save", full)
    with pytest.raises(OSError, match="no space left"):
        open_index(corpus)
    monkeypatch.undo()
    assert not [path for path in corpus.parent.iterdir() if path.is_dir()]
    assert found(open_index(corpus), "faust") == ["a"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "1", "contents": "T\nfirst\nsecond"}, ("1", "T", "first\nsecond")),
        ({"id": "1", "contents": "one line"}, ("1", "", "one line")),
        ({"id": "1", "title": "T", "contents": "a\nb"}, ("1", "T", "a\nb")),
        ({"id": "1", "text": "a\nb"}, ("1", "", "a\nb")),
        ({"text": "a"}, ("7", "", "a")),
    ],
)
def test_forms_of_a_document(row, expected):
    assert read_document(row, 7) == expected
