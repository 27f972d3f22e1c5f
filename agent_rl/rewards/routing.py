"""Chooses the scorer for a row, by the row's `data_source` or by the name in the configuration.

`compute_score` has the signature and the return type of verl's default reward function, so that verl can call it:

    reward.custom_reward_function.path=pkg://agent_rl.rewards.routing reward.custom_reward_function.name=compute_score

All scores are in [0, 1], even for data sources that verl scores with -1 and 1 (math_dapo).

To add a scorer for your own data source, write a file that registers it on import:

    @scorer("my_company/tickets*")
    def score_ticket(solution_str, ground_truth, extra_info):
        return float(ground_truth in solution_str)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import create_model

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.scorers import SCORERS, Result, Scorer, score_now
from agent_rl.rewards.scorers.scorer import ROUTES
from agent_rl.rewards.user_function import UserFunction
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings.errors import Place, Section, validated
from agent_rl.settings.importing import find_object
from agent_rl.settings.old_keys import current_value

_SCORER = TypeVar("_SCORER", bound=Callable[..., Any])
SCORER_KEY = "agent_rl.reward.correctness.scorer"


def scorer(*patterns: str) -> Callable[[_SCORER], _SCORER]:
    """Register the decorated function for the data sources that match one of the patterns (shell wildcards).

    If several patterns match, the pattern with the most literal characters applies. Registering a pattern again
    replaces its function.

    Args:
        patterns: patterns of data source names, for example `my_company/tickets*`.

    Raises:
        ConfigError: no pattern is passed, or the function cannot be called with a scorer's arguments.
    """
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise ConfigError("agent_rl.rewards.scorer", "the data source is missing", 'Write @scorer("my/source*")')

    def register(function: _SCORER) -> _SCORER:
        name = getattr(function, "__name__", type(function).__name__)
        user_scorer = UserFunction(function, Place(f"@scorer {name}")).scorer(name)
        ROUTES.update(dict.fromkeys(patterns, user_scorer))
        route.cache_clear()
        return function

    return register


@lru_cache(maxsize=1024)
def route(data_source: str) -> Scorer:
    """Return the scorer for a data source.

    Raises:
        ConfigError: the data source has no scorer; the error suggests similar known data sources.
    """
    matches = [pattern for pattern in ROUTES if pattern == data_source or fnmatchcase(data_source, pattern)]
    if not matches:
        setting = f"{SCORER_KEY}=NAME, such as math, qa_em or my_reward.py:score"
        remedy = f"Set {setting}, or correct the data source. {did_you_mean(data_source, sorted(ROUTES))}"
        raise ConfigError("data_source", f"no scorer is known for {data_source!r}", remedy)
    return ROUTES[max(matches, key=lambda pattern: (pattern == data_source, sum(c not in "*?[]" for c in pattern)))]


def find_scorer(name: str | Mapping[str, Any], folder: Path | None = None, *, key: str = SCORER_KEY) -> Scorer:
    """Return the scorer that a configuration names.

    Args:
        name: a name in `SCORERS`, `package.module.function` or `path/to/file.py:function`; or a mapping with a `name`
            in `SCORERS` and the scorer's options, such as `{"name": "math", "strict": True}`.
        folder: the folder to which a path is relative; None means the working directory.
        key: the configuration key, used in error messages.

    Raises:
        ConfigError: the scorer or one of its options does not exist, or the function cannot be called.
    """
    place, setting = Place(key), current_value(SCORER_KEY, name, key) if isinstance(name, str) else name
    if isinstance(setting, Mapping):
        if (name := str(setting.get("name"))) not in SCORERS:
            remedy = f"Only built-in scorers have options. {did_you_mean(name, SCORERS)}"
            raise place.error(f"there is no built-in scorer {name!r}", remedy)
        options = validated(_options(SCORERS[name]), setting, place).model_dump(exclude={"name"})
        return SCORERS[name].using(**options)
    if setting in SCORERS:
        return SCORERS[setting]
    function = find_object(setting, place, folder, known=SCORERS)
    return function if isinstance(function, Scorer) else UserFunction(function, place).scorer(setting)


def _options(scorer: Scorer) -> type[Section]:
    """Return a pydantic model for a scorer's options, which are its bool and Literal keyword arguments."""
    options: dict[str, Any] = {
        item.name: (item.annotation, item.default)
        for item in signature(scorer.function, eval_str=True).parameters.values()
        if item.kind is item.KEYWORD_ONLY and (item.annotation is bool or get_origin(item.annotation) is Literal)
    }
    return create_model(scorer.name, __base__=Section, name=(str, ...), **options)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    sandbox_fusion_url: str | None = None,
    concurrent_semaphore: Any = None,
    memory_limit_mb: int | None = None,
    **more: Any,
) -> Result:
    """Score one answer, with the signature of verl's reward functions; this blocks the calling thread.

    Args:
        data_source: the data source, which selects the scorer.
        solution_str: the response.
        ground_truth: the row's ground truth; its form depends on the scorer.
        extra_info: the row's `extra_info`.
        sandbox_fusion_url: Sandbox Fusion server that runs programs; None means this machine's sandbox.
        concurrent_semaphore: semaphore that is held while a program runs on the server.
        memory_limit_mb: memory limit for a program on the server, in MiB.
        more: other arguments that verl passes to every reward function, which are ignored.

    Returns:
        A number, or a dict with a number under `score`.

    Raises:
        UnscoredError: the ground truth cannot be used, or the scorer's sandbox or process failed.
        ConfigError: no scorer is known for this data source.
    """
    source_scorer = route(data_source)
    if sandbox_fusion_url:
        server = FusionServer(sandbox_fusion_url, memory_limit_mb or 1024, semaphore=concurrent_semaphore)
        source_scorer = on_fusion(source_scorer, server)
    return score_now(source_scorer, solution_str, ground_truth, {"data_source": data_source, **(extra_info or {})})


def on_fusion(local: Scorer, server: FusionServer) -> Scorer:
    """Return the scorer; if it is the built-in `code` scorer, it runs programs on the Sandbox Fusion server."""
    return local.using(server=server) if local.built_in and local.name == "code" else local
