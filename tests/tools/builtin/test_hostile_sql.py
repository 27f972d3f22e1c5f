"""Attacks on the sql tool: each ends soon, changes nothing, shows nothing that it should not, and the tool works on."""

import asyncio
import hashlib
import time

import pytest

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.tools.builtin.sql import Sql
from tests.tools.builtin.test_sql import make_database

pytestmark = pytest.mark.slow

TIMEOUT_S = 0.4
SECRET = "root:x:0:marker"
QUERIES = [
    # writing
    "INSERT INTO singer VALUES (9, 'x', 1)",
    "DELETE FROM song",
    "DROP TABLE song",
    "CREATE TABLE z AS SELECT 1 AS a",
    "VACUUM",
    "BEGIN",
    "WITH a AS (SELECT 1) INSERT INTO singer SELECT 9, 'x', 1",
    "EXPLAIN DELETE FROM song",
    # several statements, and what looks like one
    "SELECT 1; DROP TABLE song",
    "SELECT 1 /* ; */; DELETE FROM song --",
    "SELECT 1) ; DELETE FROM song; SELECT (1",
    "SELECT 1) UNION SELECT name FROM (SELECT 1",
    "SELECT 1;\0DELETE FROM song",
    # characters
    "SELECT '\ud800'",
    "ＳＥＬＥＣＴ １",  # noqa: RUF001 - full-width
    "DR\u200bOP TABLE song",
    "SELECT '" + "😀" * 5000 + "'",
    ";" * 10_000,
    ".schema " + "a" * 10_000,
    "describe " + " " * 15_000 + "!",
    "DESCRIBE singer; DROP TABLE song",
    # nesting and size
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT * FROM " + "(SELECT * FROM " * 500 + "singer" + ")" * 500,
    " UNION ALL ".join(["SELECT 1"] * 1200),
    "SELECT " + ",".join(["*"] * 3000) + " FROM song",
    "SELECT * FROM song " + " ".join(f"JOIN song s{n} ON true" for n in range(60)),
    "x" * 10_000_000,
    # endless
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "SELECT count(*) FROM song a, song b, song c, song d, song e",
    "SELECT * FROM song a, song b, song c, song d ORDER BY a.title || b.title || c.title",
    # another file
    "ATTACH '{new}' AS z",
    "ATTACH '{secret}' AS z",
    "VACUUM INTO '{new}'",
    "SELECT readfile('{secret}')",
    "SELECT writefile('{new}', 'x')",
    "SELECT load_extension('{secret}')",
    "SELECT * FROM '{secret}'",
    # functions
    "SELECT hex(zeroblob(900000000))",
    "SELECT length(hex(randomblob(1000000000)))",
    "SELECT printf('%1000000000d', 1)",
    "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(2000)))",
    "SELECT instr(hex(zeroblob(5000000)), hex(zeroblob(2000000)) || '1')",
    "SELECT hex(zeroblob(1000000)) LIKE '" + "%0" * 400 + "1'",
    "SELECT group_concat(hex(zeroblob(100000))) FROM song a, song b",
    "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT length(s) FROM r",
    "SELECT json_group_array(a.title || b.title) FROM song a, song b, song c",
    "SELECT 1" + ", zeroblob(1000000)" * 800,
    "PRAGMA journal_mode = WAL",
    "PRAGMA writable_schema = 1",
    "PRAGMA hard_heap_limit = 0",
    "PRAGMA table_info(singer); DELETE FROM song",
    "SELECT * FROM pragma_journal_mode('wal')",
    "ATTACH 'file:{new}?mode=rwc' AS z",
    "CREATE VIRTUAL TABLE z USING fts5(a)",
    "SELECT fts3_tokenizer('simple', x'41414141')",
    "SELECT edit('x', 'sh')",
]


class Target:
    """A database in a folder, a file with a secret beside them, and how all that looked at first."""

    def __init__(self, folder):
        self.database = make_database(folder)
        self.folder = folder
        self.places = {"{new}": f"{folder}/new", "{secret}": f"{folder}/secret.csv", "{folder}": str(folder)}
        (folder / "secret.csv").write_text(f"a,b\n{SECRET},1\n")
        self.before = self.look()

    def look(self):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.folder.iterdir()}

    def ask(self, query, timeout_s):
        tool = Sql({"database": str(self.database), "timeout_s": timeout_s, "memory_mb": 128}, {})
        asyncio.run(tool.start())
        return tool.call({"query": query})


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTILE_KEY", SECRET)
        yield Target(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("query", QUERIES, ids=lambda value: ascii(value[:40]))
def test_hostile_queries_change_nothing_and_end_in_time(target, query):
    for place, path in target.places.items():
        query = query.replace(place, path)
    started = time.monotonic()
    try:
        outcome = target.ask(query, TIMEOUT_S)
    except (ToolError, ToolTimeoutError) as error:  # the policy's own mistake; anything else fails the test
        outcome = str(error)
    assert time.monotonic() - started < 20
    assert len(outcome) < 10_000
    assert SECRET not in outcome
    assert target.look() == target.before
    assert target.ask("SELECT count(*) AS n FROM song", 60) == "n\n---\n200\n(1 row)"
