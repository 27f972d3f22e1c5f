from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.component import Component, GroupComponent, kinds, make_component

KEY = "agent_rl.reward.components.mine"
MINE = """
from agent_rl.rewards import Component, Value
from agent_rl.rewards.component import ComponentConfig

class Fixed(Component):
    class Config(ComponentConfig):
        value: float

    async def measure(self, trajectory):
        return Value(self.config.value)

class Unwritten(Component):
    pass

class Stranger:
    pass
"""


def test_ours_are_what_the_files_declare() -> None:
    assert set(kinds()) == {
        "environment", "judge", "pairwise_judge", "reward_api", "reward_model", "rules", "tags", "tool_rewards",
    }  # fmt: skip
    assert all(issubclass(found, Component | GroupComponent) for found in kinds().values())


def test_a_users_component_is_found_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    made = make_component("mine", f"{tmp_path}/mine.py:Fixed", {"value": 2}, KEY)
    assert (made.name, made.config.value) == ("mine", 2.0)


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("jugde", {}, rf"{KEY}\.kind: there is no kind 'jugde'"),
        ("mine.py:Fixd", {}, rf"{KEY}\.kind: .*Did you mean 'Fixed'"),
        ("mine.py:Stranger", {}, rf"{KEY}\.kind: .*is not a subclass of agent_rl.rewards.component.Component"),
        ("mine.py:Unwritten", {}, rf"{KEY}\.kind: .*does not define measure"),
        ("mine.py:Fixed", {}, rf"{KEY}\.config\.value: missing"),
        ("mine.py:Fixed", {"valeu": 1}, rf"{KEY}\.config\.(valeu|value)"),
        ("mine.py:Fixed", {"value": "x"}, rf"{KEY}\.config\.value: expected a number, got 'x'"),
    ],
)
def test_a_component_that_cannot_be_made_is_named(
    kind: str, config: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        make_component("mine", kind, config, KEY)


def of_a_model(**config: object) -> dict[str, object]:
    return {"models": {"a": config}}


JUDGE = {"url": "http://x", "model": "m"}


@pytest.mark.parametrize(
    ("kind", "config", "key"),
    [
        ("judge", {**JUDGE, "scale": [5, 5]}, "scale"),
        ("judge", {**JUDGE, "scale": [10, 0]}, "scale"),
        ("judge", {**JUDGE, "rubric": [{"name": "a", "description": "It is."}]}, "rubric"),
        ("judge", {**JUDGE, "mode": "paired"}, "mode"),
        ("judge", {**JUDGE, "aggregate": "max"}, "aggregate"),
        ("judge", {**JUDGE, "no_answer": 0}, "no_answer"),
        ("judge", {**JUDGE, "votes": 2, "quorum": 3}, "quorum"),
        ("judge", {**JUDGE, "votes": 2, "temperature": 0}, "temperature"),
        ("judge", {**JUDGE, "votes": 0}, "votes"),
        ("judge", {**JUDGE, "url": "localhost"}, "url"),
        ("reward_model", {"models": {}}, "models"),
        ("reward_model", of_a_model(weights=1), "weights"),
        ("reward_model", {**of_a_model(), "combine": "median"}, "combine"),
        ("reward_model", {**of_a_model(weight=0), "combine": "mean"}, "weight"),
        ("reward_model", of_a_model(range=[1, 0]), "range"),
        ("reward_model", of_a_model(url="http://h", prompt_length=5), "tokenizer"),
        ("rules", {}, "no rule is set"),
        ("rules", {"patterns": ["("]}, "patterns"),
        ("rules", {"al_of": ["a"]}, "al_of"),
        ("tags", {}, "tags"),
        *(("reward_api", {"url": url}, "url") for url in ("host:80/get", "ftp://host", "http://", "http://h:port", "")),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_its_key(kind: str, config: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{KEY}\.config.*{key}"):
        make_component("mine", kind, config, KEY)
