"""The shop of the recipe multi_rm: dialogues by a scripted policy, and what its customer makes of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.data import service_dialogues, write_parquet
from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks import data
from agent_rl.preflight.check import Status
from agent_rl.settings.importing import find_object
from agent_rl.tools import load_tools
from agent_rl.trajectory import Trajectory
from tests.agents.episodes import run

RECIPE = Path(__file__).parents[2] / "recipes/multi_rm"
SHOP = f"{RECIPE}/shop.py"


def row(action: str | None) -> dict[str, Any]:
    """The first row in which this change is right; None: none is."""
    rows = service_dialogues.rows(0, "train", 100)
    return next(each for each in rows if each["extra_info"]["user"]["change"]["action"] == (action or ""))


def act(action: str, number: str, address: str = "") -> str:
    extra = f', "address": "{address}"' if address else ""
    return f'Thought: now\nAction: orders\nAction Input: {{"action": "{action}", "number": "{number}"{extra}}}'


def say(text: str) -> str:
    return f"Thought: now\nMessage: {text}"


def played(row: dict[str, Any], *texts: str) -> Trajectory:
    info = row["extra_info"]
    user = load_user(f"{SHOP}:Customer", {})({}, info["user"])
    tools, its = load_tools(str(RECIPE / "shop.yaml")), {"prompt": row["prompt"], "kwargs": info["tools_kwargs"]}
    trajectory: Trajectory = run([*texts], *tools, form=UserSimFormat(), user=user, max_turns=8, **its)
    return trajectory


def about(row: dict[str, Any]) -> tuple[str, dict[str, str], str]:
    user = row["extra_info"]["user"]
    return user["replies"][0].removeprefix("It is order ").removesuffix("."), user["change"], user["tell"]


@pytest.mark.parametrize("action", ["cancel", "redirect", "refund"])
def test_the_right_change_and_no_other(action: str) -> None:
    its = row(action)
    number, change, _ = about(its)
    doing = act(action, number, change["address"])
    hello, bye = say("Which order is it?"), [say("It is done."), say("You are welcome.")]
    assert played(its, hello, act("look_up", number), doing, *bye).verdict == 1.0
    assert played(its, hello, *bye).verdict == 0.0
    assert played(its, hello, act("cancel", "1"), doing, *bye).verdict == 1.0  # a call that failed changed nothing
    if action == "redirect":
        assert played(its, hello, act(action, number, "1 Wrong Way"), *bye).verdict == 0.0
        assert played(its, hello, doing, act("cancel", number), *bye).verdict == 0.0


def test_what_cannot_be_done_must_be_told() -> None:
    its = row(None)
    number, _, state = about(its)
    hello, bye = say("Which order is it?"), say("Goodbye.")
    told = played(its, hello, act("look_up", number), say(f"Sorry, it is {state}."), bye)
    assert told.verdict == 1.0
    assert played(its, hello, act("look_up", number), say("Sorry, no."), bye).verdict == 0.0


def test_a_change_lasts_for_the_dialogue_and_no_longer() -> None:
    its = row("cancel")
    number, _, _ = about(its)
    twice = [say("Which?"), act("cancel", number), act("cancel", number), say("Done."), say("Bye.")]
    for _ in range(2):
        trajectory = played(its, *twice)
        assert '"state": "cancelled"' in trajectory.results[0].text
        assert "cancelled: cancel is not possible" in trajectory.results[1].text


def test_manners_need_a_polite_word_and_no_shouting() -> None:
    manners = find_object(f"{SHOP}:Manners", Path.cwd())
    rule = manners("manners", manners.Config())
    its = row("cancel")

    def polite(text: str) -> float:
        return float(asyncio.run(rule.measure(played(its, say(text), say("Bye."), say("Bye.")))).value)

    assert polite("Of course, which order, please?") == 1.0
    assert polite("Which order?") == 0.0
    assert polite("TELL me the number, please!!") == 0.0


def test_the_customers_verdict_needs_no_scorer() -> None:
    customer, its = load_user(f"{SHOP}:Customer", {}), row("cancel")
    assert gives_verdict(customer, its)
    assert not gives_verdict(load_user("scripted", {}), its)
    assert not gives_verdict(customer, {"extra_info": {"index": 0}})


def test_the_doctor_says_that_every_row_can_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECIPE.parents[1])
    write_parquet(service_dialogues.rows(0, "train", 4), tmp_path / "rows.parquet")
    config = compose(RECIPE, [f"data.{name}_files={tmp_path}/rows.parquet" for name in ("train", "val")])
    assert Status.PROBLEM not in {finding.status for finding in data.rows_of_files(Case(config=config))}
