"""The rewards of `tau2:` equal those of tau2's evaluator on gold, wrong and empty rollouts."""

from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, Rollouts
from tests.environments.families.served_family import Step, as_actions, in_family, needs, rollout, rows, solution
from tests.environments.sessions import act, episode

pytestmark = [needs("tau2"), pytest.mark.slow]

DOMAINS = {"mock": 7, "airline": 50, "retail": 114, "telecom": 114}
"""The number of tasks."""
TRIED = 3
"""Number of tasks of each domain whose rewards are compared."""

EVALUATOR = """
import json, os, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
from tau2.data_model.message import AssistantMessage, ToolCall
from tau2.data_model.simulation import SimulationRun, TerminationReason
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.registry import registry

data = json.load(sys.stdin)
solo, domain = data["domain"] == "telecom", data["domain"]
tasks = {task.id: task for task in registry.get_tasks_loader(domain)("base")}
rewards = []
for name, calls, answer in data["rollouts"]:
    task, messages = tasks[name], []
    environment = registry.get_env_constructor(domain)(solo_mode=solo)
    if task.initial_state:
        environment.set_state(task.initial_state.initialization_data, task.initial_state.initialization_actions, [])
    for number, (tool, arguments) in enumerate(calls):
        call = ToolCall(id=f"call{number}", name=tool, arguments=arguments)
        messages += [AssistantMessage(role="assistant", tool_calls=[call]), environment.get_response(call)]
    reason = TerminationReason.MAX_STEPS
    if answer is not None:
        messages.append(AssistantMessage(role="assistant", content=answer))
        reason = TerminationReason.AGENT_STOP
    run = SimulationRun(id="1", task_id=name, start_time="", end_time="", duration=0, termination_reason=reason,
                        messages=messages)
    try:
        rewards.append(evaluate_simulation(run, task, EvaluationType.ALL, solo, domain).reward)
    except ValueError as error:
        rewards.append(str(error))
print(json.dumps(rewards))
"""


def gold(domain: str, row: dict[str, Any]) -> tuple[list[Action], float]:
    steps, answer = solution(f"tau2:{domain}", row)
    rollouts = [(row["task"], steps, answer)]
    return as_actions(steps, answer), in_family("tau2", EVALUATOR, {"domain": domain, "rollouts": rollouts})[0]


ROLLOUTS: Rollouts = {domain: lambda row, domain=domain: gold(domain, row) for domain in DOMAINS}  # type: ignore[misc]


def spoiled(steps: list[Step], answer: str) -> dict[str, tuple[list[Step], str | None]]:
    """Rollouts of a task."""
    return {
        "gold": (steps, answer),
        "without the last call": (steps[:-1], answer),
        "without the first call": (steps[1:], answer),
        "wrong argument": ([*steps[:-1], *((name, dict.fromkeys(values, "?")) for name, values in steps[-1:])], answer),
        "other answer": (steps, "I cannot help."),
        "cut off": (steps, None),
        "empty": ([], ""),
    }


@pytest.mark.parametrize("domain", DOMAINS)
def test_rewards_equal_the_evaluators(domain: str) -> None:
    target = f"tau2:{domain}"
    tasks = rows(target)
    assert len(tasks) == DOMAINS[domain]
    names, ours, rollouts = [], [], []
    for row in tasks[:: max(1, len(tasks) // TRIED)]:
        for name, (steps, answer) in spoiled(*solution(target, row)).items():
            names.append(name)
            ours.append(rollout(target, row, steps, answer)[1])
            rollouts.append((row["task"], steps, answer))
    expected = in_family("tau2", EVALUATOR, {"domain": domain, "rollouts": rollouts})
    failed = [reward for reward in expected if isinstance(reward, str)]
    print(domain, len(ours), "the evaluator raises", sorted(set(failed)))
    assert ours == [0.0 if isinstance(reward, str) else reward for reward in expected]
    assert len(failed) == 0 or domain == "mock"
    of: dict[str, list[Any]] = {name: [] for name in names}
    for name, reward in zip(names, ours, strict=True):
        of[name].append(reward)
    print(domain, {name: round(sum(rewards) / len(rewards), 2) for name, rewards in of.items()})
    assert set(of["gold"]) == {1.0}
    assert set(of["cut off"]) == {0.0}
    assert min(ours) == 0.0


def test_the_policy_and_the_tools_are_tau2s() -> None:
    kind = load_environment("it", "tau2:telecom")
    assert "<policy>" in kind.system
    assert {"toggle_airplane_mode", "get_customer_by_phone"} <= {spec.name for spec in kind.specs}
    assert {spec.name for spec in load_environment("it", "tau2:mock").specs} == {
        *("create_task", "get_users", "transfer_to_human_agents", "update_task_status")
    }


def test_a_simulated_user_hears_each_message() -> None:
    target, talks = "tau2:retail+user", {"replies": ["Thank you."]}
    row = next(row for row in rows(target) if solution("tau2:retail", row)[1] != "Done.")
    steps, answer = solution("tau2:retail", row)
    assert "Reason for call" in row["user"]["goal"] not in row["prompt"]

    def verdict(*turns: str) -> float | None:
        calls = (act(name, **arguments) for name, arguments in steps)
        extra = {"extra_info": {"user": talks}, "budget": {"max_malformed": 1}}
        return episode(target, row, *calls, *turns, agent="user_sim_agent", **extra).verdict

    told, bye = f"Thought: x\nMessage: {answer}", "Thought: x\nMessage: Goodbye."
    assert verdict(told, bye) == verdict(bye, told) == 1.0
    assert verdict(bye, bye) == 0.0
    assert verdict(told, "Thought: x\nAction") == 0.0  # the user has not ended the conversation


@pytest.mark.parametrize("domain", ["mock", "airline", "retail"])
def test_a_user_without_tools_is_simulated(domain: str) -> None:
    assert all(row["user"]["goal"] for row in rows(f"tau2:{domain}+user"))


def test_a_user_with_tools_is_not_simulated() -> None:
    with pytest.raises(ConfigError, match=r"tau2:telecom\+user: in telecom the user has tools"):
        load_environment("it", "tau2:telecom+user")


def test_an_unknown_domain_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="tau2:bank: tau2 has no domain 'bank'; known: mock, airline"):
        load_environment("it", "tau2:bank")
