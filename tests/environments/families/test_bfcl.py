"""The rewards of `bfcl:` equal those of BFCL's own checker on gold, wrong and empty rollouts."""

from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.served import Process
from agent_rl.errors import ConfigError, UnscoredError
from tests.environments.families.playing import Action, Rollouts
from tests.environments.families.served_family import Step, as_actions, in_family, needs, rollout, rows, solution

pytestmark = needs("bfcl")

TARGETS = (
    *("bfcl:GorillaFileSystem", "bfcl:TradingBot", "bfcl:TravelAPI", "bfcl:VehicleControlAPI"),
    *("bfcl:GorillaFileSystem+MathAPI", "bfcl:MessageAPI+TradingBot", "bfcl:TicketAPI+TravelAPI"),
    "bfcl:TwitterAPI+VehicleControlAPI",
)
"""All eight classes."""

CHECKER = """
import json, sys
from pathlib import Path
import bfcl_eval
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
folder = Path(bfcl_eval.__file__).parent / "data"
read = lambda name: {each["id"]: each for each in map(json.loads, (folder / name).read_text().splitlines())}
tasks = read("BFCL_v4_multi_turn_base.json")
truths = read("possible_answer/BFCL_v4_multi_turn_base.json")
rewards = []
for number, (task, turns) in enumerate(json.load(sys.stdin)):
    truth = truths[task]["ground_truth"]  # eval_runner.py refuses another number of turns
    valid = len(turns) == len(truth) and multi_turn_checker(
        turns, truth, tasks[task], "multi_turn_base", f"model{number}")["valid"]
    rewards.append(float(valid))
print(json.dumps(rewards))
"""


def as_turns(steps: list[Step]) -> list[list[list[str]]]:
    """The form in which BFCL keeps a model's calls."""
    turns: list[list[list[str]]] = [[]]
    for name, arguments in steps:
        if name == "say":
            turns.append([])
        else:
            turns[-1].append([f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"])
    return turns


def gold(target: str, row: dict[str, Any]) -> tuple[list[Action], float]:
    steps, answer = solution(target, row)
    return as_actions(steps, answer), in_family("bfcl", CHECKER, [(row["task"], as_turns(steps))])[0]


ROLLOUTS: Rollouts = {target[5:]: lambda row, target=target: gold(target, row) for target in TARGETS}  # type: ignore[misc]


def spoiled(steps: list[Step]) -> dict[str, list[Step]]:
    """Rollouts of a task: the gold one, wrong ones, and an empty one."""
    messages = [step for step in steps if step[0] == "say"]
    calls = [number for number, (name, _) in enumerate(steps) if name != "say"]
    return {
        "gold": steps,
        "without the first call": steps[: calls[0]] + steps[calls[0] + 1 :],
        "without the last call": steps[: calls[-1]] + steps[calls[-1] + 1 :],
        "first call twice": steps[: calls[0] + 1] + steps[calls[0] :],
        "stops early": steps[: calls[-1]] if not messages else steps[: steps.index(messages[-1])],
        "messages only": messages,
        "empty": [],
    }


@pytest.mark.parametrize("target", TARGETS)
def test_rewards_equal_the_checkers(target: str) -> None:
    names, ours, rollouts = [], [], []
    for row in rows(target):
        for name, steps in spoiled(solution(target, row)[0]).items():
            names.append(name)
            ours.append(rollout(target, row, steps)[1])
            rollouts.append((row["task"], as_turns(steps)))
    assert ours == in_family("bfcl", CHECKER, rollouts)
    of: dict[str, list[float]] = {name: [] for name in names}
    for name, reward in zip(names, ours, strict=True):
        of[name].append(reward)
    print(target, len(of["gold"]), {name: sum(rewards) / len(rewards) for name, rewards in of.items()})
    assert set(of["gold"]) == {1.0}
    assert set(of["messages only"]) == set(of["empty"]) == {0.0}


def test_the_policy_reads_what_bfcl_answers() -> None:
    row = next(row for row in rows("bfcl:GorillaFileSystem") if row["task"] == "multi_turn_base_1")
    calls: list[Step] = [("cd", {"folder": "workspace"}), ("cat", {"file_name": "none"}), ("say", {"message": "Done."})]
    texts, _ = rollout("bfcl:GorillaFileSystem", row, calls)
    message = "Go to workspace directory and move one of the 'log.txt' files into a new directory 'archive'."
    assert texts == [
        None,
        '{"current_working_directory": "workspace"}',
        """{"error": "cat: 'none': No such file or directory"}""",
        message,
    ]


def test_tools_have_the_schemas_of_bfcl() -> None:
    kind = load_environment("it", "bfcl:TicketAPI+TravelAPI")
    spec = next(spec for spec in kind.specs if spec.name == "create_ticket")
    assert spec.parameters["required"] == ["title"]
    assert spec.parameters["properties"]["priority"]["type"] == "integer"
    assert {each["type"] for spec in kind.specs for each in spec.parameters["properties"].values()} <= {
        *("array", "boolean", "integer", "number", "object", "string")
    }


def test_an_unknown_id_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"bfcl:TicketAPI: no task uses exactly these classes; known: .*TravelAPI"):
        load_environment("it", "bfcl:TicketAPI")


def test_a_session_survives_its_process() -> None:
    target = "bfcl:TravelAPI"
    row = rows(target)[0]
    instance = load_environment("it", target).cls()
    instance.reset(**row)
    for name, arguments in solution(target, row)[0]:
        getattr(instance, name)(**arguments)
        _, process = Process.of("bfcl")._workers.idle[-1]
        process.kill()
        process.wait()
    assert instance.get_reward() == 1.0
    instance._session._history[1] = (*instance._session._history[1][:2], "another result")
    Process.of("bfcl")._workers.close()
    with pytest.raises(UnscoredError, match=r"its process restarted, and .* returned a different result than before"):
        instance.get_reward()


def test_a_request_that_takes_too_long_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_rl.environments.served.REQUEST_S", 1.0)
    target = "bfcl:GorillaFileSystem+MathAPI"
    hanging, other = (load_environment("it", target).cls() for _ in range(2))
    for instance in (hanging, other):
        instance.reset(**rows(target)[0])
    arguments: dict[str, Any] = {"base": 10, "exponent": 10**11}
    with pytest.raises(UnscoredError, match=r"bfcl: call.*no answer within 1 s"):
        hanging.power(**arguments)
    assert other.ls() == rollout(target, rows(target)[0], [("ls", {})])[0][1]


def test_sessions_that_are_not_used_any_more_are_closed() -> None:
    process = Process.of("bfcl")
    instance = load_environment("it", "bfcl:TravelAPI").cls()
    instance.reset(**rows("bfcl:TravelAPI")[0])
    key = instance._session._key
    assert process.ask(key, "step", "Done.")
    del instance
    assert key in process.ended
    process.ask(None, "describe", "bfcl:TravelAPI".partition(":")[2])
    with pytest.raises(LookupError):
        process.ask(key, "step", "Done.")
