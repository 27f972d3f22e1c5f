"""A BM25 index over a JSONL corpus, built once with bm25s, saved, and memory-mapped by every process that searches.

    index = open_index("wiki.jsonl")
    for hit in index.search("who wrote Faust", 3):
        print(hit.score, hit.title, hit.text)

A line of the corpus is `{"id", "title", "text"}` or, as in Search-R1, `{"id", "contents"}` with the title in the first
line of the contents; `id` and `title` may be missing. Case and accents are ignored; text in scripts that do not
separate words is split into pairs of characters. There is no stemming, so `city` does not find `cities`.

Building an index takes about 50 bytes of memory per token, or 5 GB for a million passages of 100 words; for more than a
few million passages, use a retrieval server. Changes to a corpus in use go unnoticed; a changed corpus gets a new index
at the next start, and the old index stays until you delete it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from filelock import FileLock

K1, B = 1.2, 0.75
_FORMAT = f"1 k1={K1} b={B} bm25s={bm25s.__version__}"  # changing this string rebuilds every index
_OFFSETS = "offsets.npy"
_STOPWORDS = frozenset(STOPWORDS_EN)
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670]")
"""Accents in Latin, Greek and Cyrillic script, and the vowel points in Hebrew and Arabic script."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
"""Characters that are indexed in pairs: Thai, Lao, Burmese, Khmer, kana, Han and Hangul."""
_MARKS = "\u0900-\u0963\u0966-\u0dff"  # vowel signs of Indic scripts, which \w does not match
_ASCII_WORD = re.compile("[a-z0-9]+")
_TOKEN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}_])[\w{_MARKS}])+")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]{{2,}}")

logger = logging.getLogger(__name__)
logging.getLogger("bm25s").setLevel(logging.WARNING)  # at its default level, DEBUG, bm25s logs every empty query


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    id: str
    title: str
    """The document's title; may be empty."""
    text: str
    score: float


class Bm25Index:
    """An open index; any number of threads may search it.

    Args:
        corpus: the JSONL file.
        folder: the folder of the index that `open_index` built.
    """

    def __init__(self, corpus: Path, folder: Path) -> None:
        self._bm25 = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        self._offsets = np.load(folder / _OFFSETS, mmap_mode="r")
        with open(corpus, "rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """Return at most `top_k` documents that share a word with the query, best first."""
        words = tokenize(query)
        ids = self._bm25.get_tokens_ids([word for word in words if word not in _STOPWORDS] or words)
        if not ids:
            return []
        scores = self._bm25.get_scores_from_ids(ids)
        best = np.argpartition(-scores, min(top_k, len(self)) - 1)[:top_k]
        best = best[np.lexsort((best, -scores[best]))]
        return [self._hit(int(number), float(scores[number])) for number in best if scores[number] > 0]

    def _hit(self, number: int, score: float) -> Hit:
        start = int(self._offsets[number])
        end = self._lines.find(b"\n", start)
        identity, title, text = read_document(
            json.loads(self._lines[start : end if end >= 0 else len(self._lines)]), number
        )
        return Hit(identity, title, text, score)


def open_index(corpus: str | Path, folder: str | Path | None = None) -> Bm25Index:
    """Open the index of a corpus; one process builds it first if necessary, and other processes wait for the index.

    Args:
        corpus: the JSONL file.
        folder: folder for indexes; None means the corpus's folder, or the user's cache if that folder is not writable.

    Raises:
        ValueError: the corpus cannot be read; the message names file and line.
    """
    corpus = Path(corpus).expanduser().resolve()
    if not corpus.is_file():
        raise ValueError(f"there is no file {corpus}")
    stat = corpus.stat()
    key = hashlib.sha256(f"{corpus} {stat.st_size} {stat.st_mtime_ns} {_FORMAT}".encode()).hexdigest()[:16]
    parent = Path(folder).expanduser() if folder is not None else _default_folder(corpus)
    target = parent / f"{corpus.name}.bm25-{key}"
    if not target.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not target.is_dir():
                _build(corpus, target)
    return Bm25Index(corpus, target)


def tokenize(text: str) -> list[str]:
    """Split text into words as the index does."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    # remove accents, then recompose Hangul and kana
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
    words: list[str] = []
    for word in _TOKEN.findall(text.casefold()):
        if _UNSPACED_RUN.fullmatch(word):
            words += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            words.append(word)
    return words


def read_document(row: Any, number: int) -> tuple[str, str, str]:
    """Return the id, title and text of a corpus line, or of a retrieval server's document.

    Args:
        row: the parsed JSON.
        number: the number to use as the id if the document has no id.

    Raises:
        ValueError: the document has no text.
    """
    text = (row.get("contents") or row.get("text")) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise ValueError('expected {"id", "contents"} or {"id", "title", "text"}, with text')
    title = str(row.get("title") or "")
    if not title and "contents" in row and "\n" in text:
        title, _, text = text.partition("\n")
    return str(row.get("id", number)), title.strip(), text.strip()


def _default_folder(corpus: Path) -> Path:
    if os.access(corpus.parent, os.W_OK):
        return corpus.parent
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agent_rl" / "search"


def _build(corpus: Path, target: Path) -> None:
    """Build the index in a temporary folder and rename it, so that no process opens an incomplete index."""
    logger.info("building the search index of %s (only once)", corpus)
    numbers: dict[str, int] = {}
    documents: list[list[int]] = []
    offsets: list[int] = []
    for number, offset, line in _lines(corpus):
        try:
            _, title, text = read_document(json.loads(line), len(offsets))
        except ValueError as error:
            raise ValueError(f"{corpus}, line {number}: {error}") from error
        offsets.append(offset)
        documents.append([numbers.setdefault(word, len(numbers)) for word in tokenize(f"{title}\n{text}")])
    if not numbers:
        raise ValueError(f"{corpus} has no document that contains a word")
    bm25 = bm25s.BM25(k1=K1, b=B)
    bm25.index(bm25s.tokenization.Tokenized(ids=documents, vocab=numbers), show_progress=False)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        bm25.save(building, show_progress=False)
        np.save(building / _OFFSETS, np.asarray(offsets, dtype=np.int64))
        building.chmod(0o755)
        building.rename(target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        if not target.is_dir():  # if file locks do not work, another process may have built the index
            raise
    logger.info("%s: %d documents, %d words", target, len(offsets), len(numbers))


def _lines(corpus: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number (starting at 1), the byte offset and the content of every non-blank line."""
    offset = 0
    with open(corpus, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, offset, line
            offset += len(line)
