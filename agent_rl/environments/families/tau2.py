"""The domains of tau2-bench: `tau2:mock`, `tau2:airline`, `tau2:retail`, `tau2:telecom`.

Without a user, the prompt is the ticket or the user's scenario, and the agent's first message ends the episode; in
telecom the agent also has the user's tools (tau2's solo mode). `tau2:retail+user`, `tau2:airline+user` and
`tau2:mock+user` have rows for a simulated user (`agent_rl.user_sim`), who follows the row's scenario. tau2's own
evaluator judges the episode, without the checks that need a model (`nl_assertions`). Tasks that begin in the middle of
a conversation are left out.

    python -m agent_rl.environments.install tau2
"""

from __future__ import annotations

import os
import pickle
from functools import cache
from importlib import import_module
from typing import Any

from agent_rl.environments.serve import of_split

SOLO = ("telecom",)
USER = "+user"
OPENING = "Hello, I need some help."
SYSTEM = """You are a customer service agent. Solve the user's request with the tools, as the policy requires.
{}

<policy>
{}
</policy>"""
ANSWER = "When it is solved, or cannot be solved, answer the user once, with all that they wanted to know."
TALK = "What you write without a call is a message to the user, who answers it."


def start() -> None:
    """Import the modules that sessions need, without network access, and parse each database only once."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import_module("loguru").logger.remove()
    import_module("tau2.evaluator.evaluator")
    from tau2.environment.db import DB

    parse: Any = DB.load.__func__
    parsed: Any = cache(lambda kind, path: pickle.dumps(parse(kind, path)))
    DB.load = classmethod(lambda kind, path: pickle.loads(parsed(kind, str(path))))


def describe(identifier: str) -> dict[str, Any]:
    """Return the domain's policy and tools."""
    name, has_user = _parsed(identifier)
    domain = _domain(name)
    if has_user and domain.user_tools is not None:
        raise ValueError(f"in {name} the user has tools, but a simulated user cannot call them. Use tau2:{name}")
    tools = domain.get_tools() + (domain.get_user_tools() if domain.solo_mode else [])
    functions = [tool.openai_schema["function"] for tool in tools]
    kept = [{key: each[key] for key in ("name", "description", "parameters")} for each in functions]
    system = SYSTEM.format(TALK if has_user else ANSWER, domain.get_policy())
    return {"system": system, "tools": kept, "methods": [] if has_user else ["solve"]}


def rows(identifier: str, split: str, seed: int) -> list[dict[str, Any]]:
    """Return rows with the name and the ticket or scenario of each task; tau2's own splits are used if they exist."""
    domain, has_user = _parsed(identifier)
    tasks, splits = _tasks(domain), _splits(domain)
    chosen = [name for name in tasks if name in splits.get(split, ())] or of_split(tasks, split)
    if has_user:
        return [{"prompt": OPENING, "task": name, "user": {"goal": str(tasks[name].user_scenario)}} for name in chosen]
    return [
        {"prompt": tasks[name].ticket or str(tasks[name].user_scenario.instructions), "task": name} for name in chosen
    ]


class Session:
    """One trajectory's conversation between the agent and the tools."""

    text = None

    def __init__(self, identifier: str, row: dict[str, Any]) -> None:
        self._name, _ = _parsed(identifier)
        self._task = _tasks(self._name)[row["task"]]
        self._domain, self._messages = _domain(self._name), list[Any]()
        start = self._task.initial_state
        if start is not None:
            self._domain.set_state(start.initialization_data, start.initialization_actions, [])

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool and return the result's content."""
        from tau2.data_model.message import AssistantMessage, ToolCall

        call = ToolCall(id=str(len(self._messages)), name=name, arguments=arguments)
        result = self._domain.get_response(call)
        self._messages += [AssistantMessage(role="assistant", tool_calls=[call]), result]
        return result.content, False

    def reward(self, answer: str | None) -> float:
        """Return the result of tau2's evaluator; if `answer` is None, the episode was cut off."""
        from tau2.data_model.message import AssistantMessage
        from tau2.data_model.simulation import SimulationRun, TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

        for assertion in self._task.evaluation_criteria.env_assertions or []:
            try:
                self._domain.run_env_assertion(assertion, raise_assertion_error=False)
            except ValueError:  # like tau2's evaluator, the check fails if the agent created no such task
                return 0.0
        messages = [*self._messages, *([] if answer is None else [AssistantMessage(role="assistant", content=answer)])]
        reason = TerminationReason.MAX_STEPS if answer is None else TerminationReason.AGENT_STOP
        times = {"start_time": "", "end_time": "", "duration": 0.0}
        run = SimulationRun(id="", task_id=self._task.id, termination_reason=reason, messages=messages, **times)
        info = evaluate_simulation(run, self._task, EvaluationType.ALL, self._domain.solo_mode, self._name)
        return float(info.reward)

    def solution(self) -> tuple[list[tuple[str, dict[str, Any]]], str]:
        """Return the expected actions, and an answer with the required information."""
        criteria = self._task.evaluation_criteria
        calls = [(action.name, action.arguments) for action in criteria.actions or []]
        return calls, ", ".join(criteria.communicate_info or ["Done."])


def _parsed(identifier: str) -> tuple[str, bool]:
    """Return the domain, and whether a simulated user takes part."""
    return identifier.removesuffix(USER), identifier.endswith(USER)


def _domain(name: str) -> Any:
    from tau2.registry import registry

    if name not in registry.get_domains():
        raise ValueError(f"tau2 has no domain {name!r}; known: {', '.join(registry.get_domains())}")
    return registry.get_env_constructor(name)(solo_mode=name.startswith(SOLO))


@cache
def _tasks(name: str) -> dict[str, Any]:
    from tau2.registry import registry

    tasks = registry.get_tasks_loader(name)("base")
    return {task.id: task for task in tasks if not (task.initial_state and task.initial_state.message_history)}


def _splits(name: str) -> dict[str, list[str]]:
    from tau2.registry import registry

    load = registry.get_task_splits_loader(name)
    return load() if load else {}
