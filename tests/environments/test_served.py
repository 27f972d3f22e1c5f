"""Classes of environments in another Python, here with a process that only describes them."""

from types import SimpleNamespace
from typing import Any

import pytest

from agent_rl.environments.kind import tool_names
from agent_rl.environments.served import Process, class_of
from agent_rl.errors import ConfigError


def describe(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    parameters = {"type": "object", "properties": {}}
    tools = [{"name": name, "description": "Do it.", "parameters": parameters} for name in names]
    about: dict[str, Any] = {"system": "Act.", "tools": tools, "methods": []}
    monkeypatch.setattr(Process, "of", lambda family: SimpleNamespace(ask=lambda *request: about))


def test_the_tools_are_those_that_the_family_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, "look", "take")
    assert tool_names(class_of("openenv", "house")) == ["look", "take"]


@pytest.mark.parametrize("name", ["answer", "reset", "_look"])
def test_a_tool_with_a_reserved_name_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    describe(monkeypatch, "look", name)
    with pytest.raises(ConfigError, match=rf"openenv:house: .* tool '{name}', .* reserved\. Rename the tool"):
        class_of("openenv", "house")
