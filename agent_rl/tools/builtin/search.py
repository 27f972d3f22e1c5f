"""`search`: finds documents, in a corpus on this machine or through a retrieval server.

    tools:
      - name: search
        config:
          corpus: data/wiki.jsonl         # {"id", "contents"} or {"id", "title", "text"} in each line; see `bm25`
          index: /scratch/indexes         # optional: folder of the index; default: next to the corpus
          top_k: 3                        # documents per query; the policy may request fewer
          max_chars_per_document: 2000

The index is built once, when the tool file is loaded (about 10 s for 100,000 passages), and all processes of a node
share it. With `url` instead of `corpus`, the tool sends a server Search-R1's POST {"queries", "topk", "return_scores"}:

        config:
          url: http://localhost:8000/retrieve
          api_key_env: SEARCH_API_KEY     # optional: environment variable with a bearer token
          top_k: 3
          timeout_s: 30                   # and the other keys of agent_rl.remote.http.RemoteLimits

The policy sees Search-R1's text, `Doc 1(Title: ...) ...`, whether it comes from a corpus or a server, and the trace
contains ids and scores. A server that does not answer leaves the trajectory unscored. Documents are not checked
for instructions to the policy.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.errors import ConfigError, ToolError
from agent_rl.remote import Remote, RemoteError, RemoteLimits
from agent_rl.remote.http import SERVER_URL, bearer
from agent_rl.settings.errors import Place, validated
from agent_rl.tools.base import Tool, ToolConfig, ToolOutput
from agent_rl.tools.builtin._bm25 import Bm25Index, Hit, open_index, read_document
from agent_rl.tools.truncation import shortened

MAX_QUERY_CHARS = 1000
_MAX_ECHO = 200  # maximum number of characters of a query or a title in a result

_OPENING = threading.Lock()


class _ResultLimits(ToolConfig):
    top_k: int = Field(default=3, ge=1, le=100)
    """Maximum number of documents per query."""
    max_chars_per_document: int = Field(default=2000, ge=1)
    """Maximum number of characters of a document's text that the policy sees."""


class LocalSearchConfig(_ResultLimits):
    """The `config` of an entry that searches a corpus on this machine."""

    corpus: str
    """Path of the JSONL file, relative to the working directory."""
    index: str | None = None
    """Folder for the indexes; null means the corpus's folder, or the user's cache if that folder is not writable."""


class RemoteSearchConfig(RemoteLimits, _ResultLimits):
    """The `config` of an entry that uses a retrieval server."""

    url: str = Field(pattern=SERVER_URL, examples=["http://localhost:8000"])
    """Full address of the server, usually ending with /retrieve."""
    api_key_env: str | None = None
    """Name of the environment variable that contains a bearer token."""


class Search(Tool):
    """A stateless tool that answers one query per call."""

    name = "search"
    description = "Search a collection of documents. Returns the passages that match the query best."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, for example: author of Faust"},
            "top_k": {"type": "integer", "minimum": 1, "description": "Number of passages to return"},
        },
        "required": ["query"],
    }
    timeout_s: ClassVar[float | None] = 300.0
    """A time limit longer than all retries together, so that a slow server does not count as the policy's mistake."""
    idempotent: ClassVar[bool] = True
    reusable: ClassVar[bool] = True
    retries: ClassVar[int] = 0  # `Remote` does its own retries

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for invalid settings, and build the index if necessary."""
        settings = _settings(config)
        if isinstance(settings, LocalSearchConfig):
            _index(settings)
        else:
            _remote(settings)

    async def start(self) -> None:
        """Get the index or the connections that this process shares."""
        self.settings = _settings(self.config)
        if isinstance(self.settings, RemoteSearchConfig):
            remote = _remote(self.settings)
            self.remote = await self.scope.get(remote, lambda: remote)
            return
        self.index = await asyncio.to_thread(_index, self.settings)

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Return the best documents for the query."""
        query = _clean(arguments["query"])
        top_k = min(arguments.get("top_k", self.settings.top_k), self.settings.top_k)
        if isinstance(self.settings, LocalSearchConfig):
            hits = await asyncio.to_thread(self.index.search, query, top_k)
        else:
            payload = {"queries": [query], "topk": top_k, "return_scores": True}
            answer = await self.remote.post_json(self.settings.url, payload)
            hits = _read_answer(answer, self.settings.url)[:top_k]
        metrics = {"ids": [hit.id for hit in hits], "scores": [hit.score for hit in hits]}
        return ToolOutput(self._show(query, hits), metrics=metrics)

    def _show(self, query: str, hits: list[Hit]) -> str:
        if not hits:
            return f"No document matches {query[:_MAX_ECHO]!r}. Try other words."
        lines = []
        for number, hit in enumerate(hits, 1):
            title = f"(Title: {hit.title[:_MAX_ECHO]})" if hit.title else ":"
            lines.append(f"Doc {number}{title} {shortened(hit.text, self.settings.max_chars_per_document)}")
        return "\n".join(lines)


def _settings(config: Mapping[str, Any]) -> LocalSearchConfig | RemoteSearchConfig:
    if ("corpus" in config) == ("url" in config):
        keys = ", ".join(map(str, config)) or "none"
        raise ConfigError("", f"expected either `corpus` or `url`, got {keys}", "Write one of them")
    return validated(LocalSearchConfig, config) if "corpus" in config else validated(RemoteSearchConfig, config)


def _index(settings: LocalSearchConfig) -> Bm25Index:
    with _OPENING, Place("corpus").around("Fix the corpus"):  # many trajectories may open it at once
        return _open(settings)


@cache
def _open(settings: LocalSearchConfig) -> Bm25Index:
    return open_index(settings.corpus, settings.index)


@cache
def _remote(settings: RemoteSearchConfig) -> Remote:
    return Remote(headers=bearer(settings.api_key_env, "api_key_env"), limits=settings)


def _clean(query: str) -> str:
    """Replace whitespace, control characters and lone surrogates with single spaces."""
    if len(query) > MAX_QUERY_CHARS:
        raise ToolError(f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are searched for")
    printable = "".join(character if character.isprintable() else " " for character in query)
    query = " ".join(printable.split())
    if not any(character.isalnum() for character in query):
        raise ToolError("the query has no words to search for")
    return query


def _read_answer(answer: Any, url: str) -> list[Hit]:
    """Return the documents for the first query; a missing score is 0."""
    try:
        hits = []
        for number, item in enumerate(answer["result"][0]):
            document = item.get("document", item)
            hits.append(Hit(*read_document(document, number), score=float(item.get("score") or 0.0)))
        return hits
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        host = url.split("/")[2].rpartition("@")[2]
        raise RemoteError(host, 'the answer is not {"result": [[{"document": {"contents"}}]]}') from error
