"""Twenty lines of YAML, written wrong in more than twenty ways: the message names file, entry, field and remedy."""

import os
import re
import sqlite3

import pytest

from agent_rl.errors import ConfigError
from agent_rl.tools import load_tools

GOOD = """\
tools:
  - name: calculator
    timeout_s: 5
  - name: python
    config:
      mode: session
      memory_mb: 256
  - class_name: own.py:Weather
    description: The weather of a town.
    parameters:
      type: object
      properties:
        town: {type: string}
      required: [town]
    max_concurrency: 4
  - name: sql
    config:
      database: shop.sqlite
      max_rows: 20
    cache: trajectory
"""

OWN = """
from agent_rl.tools import Tool

class Weather(Tool):
    name = "weather"
    async def call(self, arguments):
        return "sunny"
"""

WRONG = [  # what is written instead of what, the entry's field, and what the message says beside it
    (
        "missing class",
        "own.py:Weather",
        "own.py:Wether",
        "tools[2] (own.py:Wether).class_name",
        "Did you mean 'Weather'",
    ),
    ("missing file", "own.py", "onw.py", "tools[2] (onw.py:Weather).class_name", "Did you mean 'own.py'"),
    ("bad import path", "own.py:Weather", "weather.Tool", "tools[2] (weather.Tool).class_name", "installed"),
    ("no import path", "own.py:Weather", "Weather", "tools[2] (Weather).class_name", "package.module.Class"),
    ("unknown key", "timeout_s", "timeout", "tools[0] (calculator).timeout", "Did you mean 'timeout_s'"),
    ("wrong type", "timeout_s: 5", "timeout_s: five", "tools[0] (calculator).timeout_s", "`timeout_s: 1`"),
    ("wrong number", "currency: 4", "currency: 0", "tools[2] (own.py:Weather).max_concurrency", "at least 1"),
    ("duplicate name", "  max_c", "  name: python\n    max_c", "tools[2] (python).name", "Rename one"),
    ("unknown tool", "name: python", "name: pyton", "tools[1] (pyton).name", "Did you mean 'python'"),
    ("bad schema", "{type: string}", "{type: strng}", "tools[2] (own.py:Weather).parameters", "properties.town.type"),
    ("no object", "type: object", "type: text", "tools[2] (own.py:Weather).parameters", "Write `type: object`"),
    ("bad required", "[town]", "[twon]", "tools[2] (own.py:Weather).parameters", "Did you mean 'town'"),
    (
        "no description",
        "description: The weather of a town.",
        "",
        "tools[2] (own.py:Weather).description",
        "Write `desc",
    ),
    ("config of no use", "timeout_s: 5", "config: {digits: 3}", "tools[0] (calculator).config.digits", "unknown key"),
    (
        "config is a list",
        "config:\n      mode: session\n      memory_mb: 256",
        "config: [a]",
        "(python).config",
        "mapping",
    ),
    ("unknown config key", "memory_mb", "memory", "tools[1] (python).config.memory", "Did you mean 'memory_mb'"),
    ("wrong config value", "mode: session", "mode: notebook", "tools[1] (python).config.mode", "session"),
    ("wrong config type", "memory_mb: 256", "memory_mb: lots", "tools[1] (python).config.memory_mb", "lots"),
    ("missing database", "shop.sqlite", "shop.db", "tools[3] (sql).config.database", "shop.db"),
    ("no rows", "max_rows: 20", "max_rows: 0", "tools[3] (sql).config.max_rows", "0"),
    ("unknown scope", "cache: trajectory", "cache: allways", "tools[3] (sql).cache", "Known: off, shared, trajectory"),
    (
        "cache of a stateful tool",
        "  max_concurrency: 4",
        "  cache: shared",
        "(own.py:Weather).cache",
        "reusable: true",
    ),
    ("unset variable", "shop.sqlite", "${oc.env:NO_SUCH_VARIABLE}", "tools[3].config.database", "NO_SUCH_VARIABLE"),
    ("no mapping", "name: calculator\n    timeout_s: 5", "calculator", "tools[0]", "Write `- name: calculator`"),
    ("no list", "tools:", "tool:", "tools.yaml", "Write `tools:`"),
    ("bad syntax", "config:", "config: {", "tools.yaml", "Fix the syntax"),
    ("key that is no text", "town:", "on:", "tools[2] (own.py:Weather)", "Put it in quotes"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE item (name TEXT)")
    connection.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_is_good_before_it_is_made_wrong(folder):
    (folder / "tools.yaml").write_text(GOOD)
    assert [spec.name for spec in load_tools("tools.yaml")] == ["calculator", "python", "weather", "sql"]
    assert len(GOOD.splitlines()) == 20


@pytest.mark.parametrize(("right", "wrong", "field", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_message_names_file_entry_field_and_remedy(folder, right, wrong, field, said):
    assert right in GOOD
    (folder / "tools.yaml").write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(ConfigError) as caught:
        load_tools(folder / "tools.yaml")
    message = str(caught.value)
    assert message.startswith(str(folder / "tools.yaml"))
    if field.startswith("tools["):
        assert re.match(r".*tools\.yaml:\d+: tools\[", message)
    assert field in message
    assert said in message
    assert caught.value.remedy
    assert "\n" not in message or "not YAML" in message


def test_a_file_that_may_not_be_read(folder):
    (folder / "tools.yaml").write_text(GOOD)
    (folder / "tools.yaml").chmod(0)
    if os.access(folder / "tools.yaml", os.R_OK):  # root reads everything
        (folder / "tools.yaml").unlink()
        (folder / "tools.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"tools\.yaml: cannot be read: .*Name a readable YAML file"):
        load_tools(folder / "tools.yaml")
