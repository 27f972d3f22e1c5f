"""The search tool, over a corpus and over a retrieval server."""

import json

import pytest

from agent_rl.errors import ConfigError
from agent_rl.remote import RemoteError
from agent_rl.trajectory import ToolStatus
from tests.support.http_faults import FaultyServer, answer, drop
from tests.tools import use

pytestmark = pytest.mark.usefixtures("quick_delays")

DOCUMENTS = [
    {"id": "a", "contents": '"Faust"\nFaust is a tragic play by Goethe. ' + "x" * 100},
    {"id": "b", "contents": '"Goethe"\nGoethe was born in Frankfurt.'},
    {"id": "c", "contents": "Frankfurt lies on the Main."},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS))
    return path


@pytest.fixture
def load(tmp_path):
    return lambda **config: use.load(tmp_path, "search", config)[0]


def run(spec, *arguments):
    return use.run([spec], [("search", each) for each in arguments])


def test_local_search_ranks_and_shortens_documents(load, corpus):
    spec = load(corpus=str(corpus), top_k=2, max_chars_per_document=40)
    one, two, three = run(spec, {"query": "Who was Goethe?"}, {"query": "goethe", "top_k": 1}, {"query": "Main"})
    assert one.text == (
        'Doc 1(Title: "Goethe") Goethe was born in Frankfurt.\n'
        'Doc 2(Title: "Faust") Faust is a tragic play by Goethe. xxxxxx...'
    )
    assert one.metrics["ids"] == ["b", "a"]
    assert one.metrics["scores"][0] > one.metrics["scores"][1] > 0
    assert two.metrics["ids"] == ["b"]
    assert three.text == "Doc 1: Frankfurt lies on the Main."
    assert len(run(spec, {"query": "goethe", "top_k": 50})[0].metrics["ids"]) == 2, "top_k of the config is the most"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("x" * 10_000, "the query has 10000 characters; at most 1000 are searched for"),
        ("", "the query has no words"),
        ("\x00\x1b\ud800?", "the query has no words"),
        ("zebra", "No document matches 'zebra'. Try other words."),
    ],
)
def test_queries_that_find_nothing(load, corpus, query, text):
    (result,) = run(load(corpus=str(corpus)), {"query": query})
    assert (result.status is ToolStatus.OK) is (query == "zebra")
    assert text in result.text


def retrieval(handler):
    """Search-R1's server, with the documents in their order."""
    asked = json.loads(handler.body)
    found = [
        [{"document": row, "score": 1.0 - place / 10} for place, row in enumerate(DOCUMENTS[: asked["topk"]])]
        for _ in asked["queries"]
    ]
    answer(200, {"result": found})(handler)


def test_remote_search_retries_and_sends_its_key(load, monkeypatch):
    monkeypatch.setenv("SEARCH_TEST_KEY", "sk-search")
    with FaultyServer(answer(503), drop, default=retrieval) as server:
        spec = load(url=f"{server.url}/retrieve", top_k=2, api_key_env="SEARCH_TEST_KEY")
        (result,) = run(spec, {"query": "about\x00 Goethe \ud800"})
    assert result.text.startswith('Doc 1(Title: "Faust") Faust is a tragic play')
    assert result.metrics == {"ids": ["a", "b"], "scores": [1.0, 0.9]}
    last = server.requests[-1]
    assert (last.path, last.headers["authorization"]) == ("/retrieve", "Bearer sk-search")
    assert json.loads(last.body) == {"queries": ["about Goethe"], "topk": 2, "return_scores": True}
    assert len(server.requests) == 3


def test_answers_without_scores_and_without_documents(load):
    with FaultyServer(answer(200, {"result": [DOCUMENTS]}), answer(200, {"result": [[]]})) as server:
        spec = load(url=server.url, top_k=2)
        first, second = (run(spec, {"query": "a"})[0] for _ in range(2))
    assert first.metrics == {"ids": ["a", "b"], "scores": [0.0, 0.0]}
    assert second.text == "No document matches 'a'. Try other words."


@pytest.mark.parametrize(
    "fault",
    [
        answer(500),
        answer(200, {"result": []}),
        answer(200, {"result": [[{"document": {"id": "1"}}]]}),
        answer(200, {"result": [[{"document": {"text": "a"}, "score": "high"}]]}),
    ],
)
def test_a_server_that_fails_leaves_the_trajectory_unscored(load, fault):
    with FaultyServer(default=fault) as server:
        spec = load(url=server.url, attempts=2, timeout_s=0.5)
        with pytest.raises(RemoteError, match=r"^127\.0\.0\.1"):
            run(spec, {"query": "a"})


def test_a_corpus_that_vanishes_after_loading_stops_the_run(load, corpus):
    from agent_rl.tools.builtin import search

    spec = load(corpus=str(corpus))
    search._open.cache_clear()  # as in another process
    corpus.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        run(spec, {"query": "a"})
