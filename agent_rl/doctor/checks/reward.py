"""Checks of the reward: its settings, the manager, the custom function, and whether the rows can be scored."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator

from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.doctor.case import Case
from agent_rl.doctor.check import Needs, check
from agent_rl.doctor.finding import Finding, ok, problem, reason
from agent_rl.errors import ConfigError, UnscoredError, did_you_mean
from agent_rl.rewards import Reward, find_scorer, route
from agent_rl.rewards.scorers import score_now
from agent_rl.settings import SECTION, TERMS
from agent_rl.verl_adapter import inspection

MANAGER = "reward.reward_manager.name"
FUNCTION = "reward.custom_reward_function"
OURS = "trajectory"


@check("reward", "reward weights")
def weights(case: Case) -> Finding | None:
    """The reward's settings are valid, its components can be constructed, and some weight is not 0."""
    settings = case.settings.reward
    if case.get(MANAGER) != OURS:
        return None
    Reward(
        settings, max_response_tokens=case.get("data.max_response_length"), judged=bool(case.get(f"{FUNCTION}.path"))
    )
    terms = {name: getattr(settings, name) for name in TERMS} | settings.components
    parts = {name: term.weight_at(None) for name, term in terms.items() if getattr(term, "penalty", 1)}
    if not any(parts.values()):
        text = "every weight is 0: there is nothing to learn from"
        return problem(text, "Set agent_rl.reward.correctness.weight")
    return ok(", ".join(f"{name} {weight:g}" for name, weight in parts.items()))


@check("reward", "ground truth")
def ground_truths(case: Case) -> Finding | None:
    """Each row has a scorer and a valid ground truth for it, or a simulated user that gives the verdict."""
    settings, scorer = case.settings, case.settings.reward.correctness.scorer
    if case.get(MANAGER) != OURS or case.get(f"{FUNCTION}.path") or scorer == "none" or settings.reward.reward_api:
        return None
    named = None if scorer == "auto" else find_scorer(scorer)
    user = load_user(settings.user_sim.user, settings.user_sim.config)
    bad, checked = [], 0
    for file in (*case.train, *case.val):
        for number, row in enumerate(file.rows):
            if not isinstance(row.get("reward_model"), dict):
                continue
            checked += 1
            if named is None and gives_verdict(user, row):
                continue
            source, truth = str(row.get("data_source")), row["reward_model"].get("ground_truth")
            try:
                score_now(named or route(source), "", truth)
            except (UnscoredError, ConfigError) as error:
                bad.append(f"{case.shown(file.path)}, row {number}, data_source {source!r}: {error}")
    if bad:
        remedy = f"Correct the rows, or set {SECTION}.reward.correctness.scorer, or {FUNCTION}.path"
        return problem(f"{len(bad)} of {checked} rows cannot be judged, the first: {bad[0]}", remedy)
    return ok(f"{checked} rows can be judged") if checked else None


@check("reward", "reward manager", Needs.VERL)
def manager(case: Case) -> Finding:
    """The reward manager is registered with verl, or can be loaded."""
    name, registered = str(case.get(MANAGER)), inspection.reward_managers()
    if _is_registered_by_name(case) and name not in registered:
        return problem(f"{name!r} is not registered", did_you_mean(name, registered))
    assert case.config is not None
    try:
        inspection.load_reward_manager(case.config)
    except Exception as error:  # noqa: BLE001 - the user's own module may raise anything: it goes into the table
        return problem(f"cannot be loaded: {reason(error)}", "Fix reward.reward_manager.module")
    return ok(name)


@check("reward", "reward function", Needs.VERL)
def function(case: Case) -> Finding | None:
    """The custom reward function can be imported, and called with verl's arguments."""
    path, name = case.get(f"{FUNCTION}.path"), case.get(f"{FUNCTION}.name")
    if not path:
        return None
    try:
        loaded = inspection.load_function(path, name)
    except Exception as error:  # noqa: BLE001 - the user's own module may raise anything: it goes into the table
        text = f"{path}: {name} cannot be loaded: {reason(error)}"
        return problem(text, f"Fix the file, or {FUNCTION}.path and .name")
    arguments = dict.fromkeys(("data_source", "solution_str", "ground_truth", "extra_info"))
    try:
        inspect.signature(loaded).bind(**arguments, **case.get(f"{FUNCTION}.reward_kwargs", {}))
    except TypeError as error:
        remedy = "Take data_source, solution_str, ground_truth, extra_info and reward_kwargs, by these names"
        return problem(f"{name} cannot be called: {error}", remedy)
    except ValueError:  # a builtin without a known signature
        pass
    return ok(f"{name} in {path}")


@check("reward", "data_source", Needs.VERL)
def sources(case: Case) -> Iterator[Finding]:
    """If verl's own scoring is used, it knows the rows' data sources."""
    if case.get(MANAGER) == OURS or case.get(f"{FUNCTION}.path") or case.get("reward.reward_model.enable"):
        return
    if not _is_registered_by_name(case):
        return
    named = Counter(str(row.get("data_source")) for row in case.rows)
    unknown = [name for name in named if not inspection.scores(name)]
    for name in unknown:
        yield problem(
            f"verl has no scoring for {name!r} ({named[name]} rows)", f"Set {MANAGER}={OURS}, or {FUNCTION}.path"
        )
    if named and not unknown:
        yield ok(f"verl scores {', '.join(named)}")


def _is_registered_by_name(case: Case) -> bool:
    return bool(case.get("reward.reward_manager.source", "register") == "register")
