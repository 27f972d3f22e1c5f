"""The tables that are written by hand name everything that the package contains."""

import re

import pytest
from omegaconf import OmegaConf

from agent_rl.agents.registry import agent_names
from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.rewards import SCORERS
from agent_rl.rewards.component import kinds
from agent_rl.tools.builtin import built_in_names
from tests.docs.pages import ROOT, read
from tests.test_layers import FLOORS, WITHOUT_FLOOR


def names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def first_column(page: str, header: str) -> list[str]:
    """The first cells of the table whose header line begins so."""
    (table,) = re.findall(rf"^\| {re.escape(header)}.*\n\| ---.*\n((?:\|.*\n)+)", read(page), re.MULTILINE)
    return re.findall(r"^\| (.*?) \|", table, re.MULTILINE)


def test_tools() -> None:
    assert names(" ".join(first_column("docs/guides/tools.md", "name |"))) == set(built_in_names())


def test_agents_and_syntaxes() -> None:
    assert names(" ".join(first_column("docs/guides/agents.md", "name |"))) == set(agent_names())
    (told,) = re.findall(r"in the syntax set by `multi_turn.format`: (.*?) \|", read("docs/guides/agents.md"))
    assert set(told.split(", ")) == set(SYNTAXES)


def test_components_and_scorers() -> None:
    told = names(" ".join(first_column("docs/guides/rewards.md", "kind |")))
    assert told == set(kinds())
    (scorers,) = re.findall(r"The built-in scorers are (.*?)\[The ref", read("docs/guides/rewards.md"), re.DOTALL)
    assert names(scorers) == set(SCORERS)
    assert f"{len(SCORERS)} scorers" in read("README.md")


def test_groups() -> None:
    rows = re.findall(r"^\| `(\w+)=` \| ([\w@, ]+) \|", read("docs/start.md"), re.MULTILINE)
    told = {group: set(choices.split(", ")) for group, choices in rows if group != "size"}
    folders = [path for path in (ROOT / "agent_rl/config").iterdir() if path.is_dir() and path.name != "__pycache__"]
    groups = {folder.name: {file.stem for file in folder.glob("*.yaml")} for folder in folders}
    groups.pop("platform")  # VERL_PLATFORM chooses it
    assert told == groups


KEY = re.compile(r"`((?:actor_rollout_ref|algorithm|critic|data|reward|trainer)(?:\.\w+)+)")


@pytest.mark.trainer
@pytest.mark.parametrize("page", ["docs/symptoms.md", "docs/start.md", "docs/guides/algorithms.md"])
def test_keys_of_verl_exist(page: str) -> None:
    from agent_rl.launch.composition import compose

    config = compose("gsm8k_calculator", [])
    for key in KEY.findall(read(page)):
        above, _, name = key.rpartition(".")
        assert name in OmegaConf.select(config, above), key


def test_recipes() -> None:
    told = {name for row in first_column("README.md", "recipe |") for name in re.findall(r"\[(\w+)\]\(", row)}
    assert told == {path.parent.name for path in ROOT.glob("recipes/*/README.md")}


def test_the_house_has_its_floors_in_order() -> None:
    places = re.findall(r"`(\w+)(?:/|\.py)`", " ".join(first_column("agent_rl/README.md", "place |")))
    assert [place for place in places if place not in WITHOUT_FLOOR] == list(FLOORS)


def test_the_readmes_range_is_that_of_the_quickstarts_seeds() -> None:
    rows = re.findall(r"^\| (\d) \| .*? \| ([\d.]+) to ([\d.]+) \|", read("recipes/quickstart/README.md"), re.MULTILINE)
    low, high, least, most = re.findall(r"rises from ([\d.]+)-([\d.]+) to ([\d.]+)-([\d.]+) over", read("README.md"))[0]
    before, after = ([float(row[at]) for row in rows] for at in (1, 2))
    assert f"over {len(rows)} seeds" in read("README.md")
    assert [min(before), max(before), min(after), max(after)] == [float(each) for each in (low, high, least, most)]


def test_the_comparison_of_credit_algorithms_is_that_of_its_runs() -> None:
    runs = read("recipes/text_world/results/credit/table.md").splitlines()[2:]
    medians = {tuple(re.split(r" *\| *", line)[1:3]): re.split(r" *\| *", line)[5:7] for line in runs}
    (table,) = re.findall(
        r"rewards of turns \| outcome alone \|\n\| ---.*\n((?:\|.*\n)+)", read("recipes/text_world/README.md")
    )
    for line, algorithm in zip(table.splitlines(), ("grpo", "turn", "gigpo"), strict=True):
        cells = re.split(r" *\| *", line)[2:4]
        for cell, reward in zip(cells, ("turns", "outcome"), strict=True):
            median, share = medians[reward, algorithm]
            assert cell == (median if algorithm == "grpo" else f"{median} ({share})")
