"""Checks of the reward: our section, the manager, the custom function, and whether it can judge the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, reason
from agent_rl.errors import ConfigError, UnscoredError, did_you_mean
from agent_rl.rewards import Reward, find_scorer, route
from agent_rl.rewards.scorers import score_now
from agent_rl.settings import SECTION, TERMS, AgentRLSettings

__all__ = ["function", "ground_truths", "manager", "sources", "weights"]

MANAGER = "reward.reward_manager.name"
FUNCTION = "reward.custom_reward_function"
OURS = "trajectory"


def weights(case: Case) -> Iterator[Finding]:
    """Our section is valid, its components can be made, and some part of the reward counts."""
    settings = AgentRLSettings.from_config({SECTION: case.get(SECTION)}).reward
    if case.get(MANAGER) != OURS:
        return
    Reward(
        settings, max_response_tokens=case.get("data.max_response_length"), judged=bool(case.get(f"{FUNCTION}.path"))
    )
    terms = {name: getattr(settings, name) for name in TERMS} | settings.components
    parts = {name: term.weight_at(None) for name, term in terms.items() if getattr(term, "penalty", 1)}
    if not any(parts.values()):
        yield problem(
            "reward weights",
            "every weight is 0: there is nothing to learn from",
            "Set agent_rl.reward.correctness.weight",
        )
    else:
        yield ok("reward weights", ", ".join(f"{name} {weight:g}" for name, weight in parts.items()))


def ground_truths(case: Case) -> Iterator[Finding]:
    """Each row has a scorer, and a ground truth that it can judge by, or a user who judges."""
    if case.get(MANAGER) != OURS or case.get(f"{FUNCTION}.path"):
        return
    settings = AgentRLSettings.from_config({SECTION: case.get(SECTION)})
    reward = settings.reward
    if reward.correctness.scorer == "none" or reward.reward_api is not None:
        return
    named = None if reward.correctness.scorer == "auto" else find_scorer(reward.correctness.scorer)
    user = load_user(settings.user_sim.user, settings.user_sim.config)
    bad, checked = [], 0
    for table, number, row in _rows(case):
        checked += 1
        if named is None and gives_verdict(user, row):
            continue
        source, truth = str(row.get("data_source")), row["reward_model"].get("ground_truth")
        try:
            score_now(named or route(source), "", truth)
        except (UnscoredError, ConfigError) as error:
            bad.append(f"{case.shown(table.path)}, row {number}, data_source {source!r}: {error}")
    if bad:
        remedy = f"Mend the rows, or set {SECTION}.reward.correctness.scorer, or {FUNCTION}.path"
        yield problem("ground truth", f"{len(bad)} of {checked} rows cannot be judged, the first: {bad[0]}", remedy)
    elif checked:
        yield ok("ground truth", f"{checked} rows can be judged")


def manager(case: Case) -> Iterator[Finding]:
    """The reward manager is registered with verl, or can be loaded."""
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    name = str(case.get(MANAGER))
    if case.get("reward.reward_manager.source", "register") == "register" and name not in REWARD_MANAGER:
        yield problem("reward manager", f"{name!r} is not registered", did_you_mean(name, REWARD_MANAGER))
        return
    try:
        resolve_reward_manager_cls(case.config)
    except Exception as error:  # noqa: BLE001 - the user's own module may raise anything: it goes into the table
        yield problem("reward manager", f"cannot be loaded: {reason(error)}", "Mend reward.reward_manager.module")
    else:
        yield ok("reward manager", name)


def function(case: Case) -> Iterator[Finding]:
    """The custom reward function can be imported and called with what it is given."""
    path, name = case.get(f"{FUNCTION}.path"), case.get(f"{FUNCTION}.name")
    if not path:
        return
    import inspect

    from verl.utils.import_utils import load_extern_object

    try:
        loaded = load_extern_object(module_path=path, object_name=name)
    except Exception as error:  # noqa: BLE001 - the user's own module may raise anything: it goes into the table
        text = f"{path}: {name} cannot be loaded: {reason(error)}"
        yield problem("reward function", text, f"Mend the file, or {FUNCTION}.path and .name")
        return
    try:
        inspect.signature(loaded).bind(
            data_source="", solution_str="", ground_truth="", extra_info={}, **case.get(f"{FUNCTION}.reward_kwargs", {})
        )
    except TypeError as error:
        remedy = "Take data_source, solution_str, ground_truth, extra_info and reward_kwargs, by these names"
        yield problem("reward function", f"{name} cannot be called: {error}", remedy)
    except ValueError:
        yield ok("reward function", f"{name} in {path}")  # a builtin, whose signature is not known
    else:
        yield ok("reward function", f"{name} in {path}")


def sources(case: Case) -> Iterator[Finding]:
    """The rows' data sources are known to verl's own scoring, where that is used."""
    if case.get(MANAGER) == OURS or case.get(f"{FUNCTION}.path") or case.get("reward.reward_model.enable"):
        return
    if case.get("reward.reward_manager.source", "register") != "register":
        return
    named = Counter(str(row.get("data_source")) for table in (*case.train, *case.val) for row in table.rows)
    unknown = [name for name in named if not _is_scored(name)]
    for name in unknown:
        text = f"verl has no scoring for {name!r} ({named[name]} rows)"
        yield problem("data_source", text, f"Set {MANAGER}={OURS}, or {FUNCTION}.path")
    if named and not unknown:
        yield ok("data_source", f"verl scores {', '.join(named)}")


def _is_scored(name: str) -> bool:
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(name, "", "")
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - a scorer that dislikes an empty answer is a scorer
        return True
    return True


def _rows(case: Case) -> Iterator[tuple[Any, int, dict[str, Any]]]:
    for table in (*case.train, *case.val):
        for number, row in enumerate(table.rows):
            if isinstance(row.get("reward_model"), dict):
                yield table, number, row
