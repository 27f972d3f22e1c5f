"""Compares a recipe with published runs: which settings differ, and whether the published figures may be quoted.

A card, `recipes/published/NAME.yaml`, describes one published run. A setting that the card's sources do not mention is
`unknown` and counts as a difference. A card also states facts that the recipe's configuration does not show, such as
the test set; such a statement becomes `unknown` if an override changes one of the keys on which it depends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import yaml
from pydantic import Field

from agent_rl.errors import did_you_mean
from agent_rl.launch.composition import compose
from agent_rl.launch.recipes import recipe_folder, share_folder
from agent_rl.preflight.case import RunCase
from agent_rl.settings.errors import Place, Section, read_yaml, validated, yaml_errors
from agent_rl.settings.reward import Schedule

UNKNOWN, NONE = "unknown", "none"
ACTOR, MODEL, ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("actor", "model", "rollout"))
OPTIM, TURNS = f"{ACTOR}.optim", f"{ROLLOUT}.multi_turn.max_assistant_turns"
CORRECTION = "algorithm.rollout_correction.rollout_is"
Value = str | float | list[str]


def _kl(case: RunCase) -> Value:
    if case.get("algorithm.use_kl_in_reward"):
        return f"reward {case.get('algorithm.kl_ctrl.kl_coef'):g}"
    return f"loss {case.get(f'{ACTOR}.kl_loss_coef'):g}" if case.get(f"{ACTOR}.use_kl_loss") else NONE


def _observation(case: RunCase) -> Value:
    tokens = case.settings.tools.max_result_tokens
    return f"{tokens} tokens" if tokens else f"{case.get(f'{ROLLOUT}.multi_turn.max_tool_response_length')} characters"


def _tools(case: RunCase) -> Value:
    """Return the environments and the tools' names; the tools are not loaded, because their files may be missing."""
    environments = list(case.settings.environments.values())
    if case.tool_path is None:
        return environments
    with yaml_errors(case.tool_path):
        entries = yaml.safe_load(case.tool_path.read_text(encoding="utf-8"))["tools"]
    return [*(entry.get("name") or entry["class_name"] for entry in entries), *environments]


def _reward(case: RunCase) -> Value:
    terms = next(iter(case.reward.sources.values())).terms
    weights = {term.name: term.settings.weight for term in terms if term.settings.weight}
    return [f"{'changing' if isinstance(w, Schedule) else f'{w:g}'} x {name}" for name, w in weights.items()]


SETTINGS: Mapping[str, str | Callable[[RunCase], Value]] = {
    "model": lambda case: case.get("agent_rl.cold_start.base") or case.get(f"{MODEL}.path"),
    "cold_start": lambda case: "supervised" if case.settings.cold_start else NONE,
    "trained_weights": lambda case: f"LoRA {rank}" if (rank := case.get(f"{MODEL}.lora_rank")) else "all",
    "algorithm": "algorithm.adv_estimator",
    "steps": lambda case: case.get("trainer.total_training_steps") or f"epochs: {case.get('trainer.total_epochs')}",
    "batch": "data.train_batch_size",
    "mini_batch": f"{ACTOR}.ppo_mini_batch_size",
    "samples": f"{ROLLOUT}.n",
    "groups": lambda case: "equal rewards replaced" if case.get("algorithm.filter_groups.enable") else "all",
    "void_turns": "agent_rl.mask_void",
    "learning_rate": f"{OPTIM}.lr",
    "warmup": lambda case: max(case.get(f"{OPTIM}.lr_warmup_steps"), 0) or case.get(f"{OPTIM}.lr_warmup_steps_ratio"),
    "grad_norm": f"{OPTIM}.clip_grad",
    "kl": _kl,
    "clip_low": f"{ACTOR}.clip_ratio_low",
    "clip_high": f"{ACTOR}.clip_ratio_high",
    "clip_c": f"{ACTOR}.clip_ratio_c",
    "correction": CORRECTION,
    "correction_limit": lambda case: case.get(f"{CORRECTION}_threshold") if case.get(CORRECTION) else NONE,
    "temperature": f"{ROLLOUT}.temperature",
    "top_p": f"{ROLLOUT}.top_p",
    "turns": TURNS,
    "turn_tokens": lambda case: "no limit",
    "prompt_tokens": "data.max_prompt_length",
    "response_tokens": "data.max_response_length",
    "observation": _observation,
    "agent": f"{ROLLOUT}.agent.default_agent_loop",
    "tools": _tools,
    "user": "agent_rl.user_sim.config.model",
    "user_temperature": "agent_rl.user_sim.config.temperature",
    "reward": _reward,
    "validation_samples": f"{ROLLOUT}.val_kwargs.n",
    "validation_temperature": f"{ROLLOUT}.val_kwargs.temperature",
    "validation_top_p": f"{ROLLOUT}.val_kwargs.top_p",
    "validation_top_k": f"{ROLLOUT}.val_kwargs.top_k",
    "validation_turns": TURNS,
    "gpus": lambda case: case.number("trainer.n_gpus_per_node", 1) * case.number("trainer.nnodes", 1),
}
"""The configuration key or function that provides each setting's value; a `warmup` below 1 is a share of the steps."""
STATED = {
    "rows": ("data.train_files",),
    "test": ("data.val_files",),
    "environment": (f"{ROLLOUT}.multi_turn.tool_config_path", "agent_rl.environments"),
    "scorer": ("agent_rl.reward.correctness.scorer",),
}
"""The settings that a card states for a recipe, each with the configuration keys on which it depends."""


class SourcePage(Section):
    """A web page with facts about a published run."""

    page: str
    url: str
    read: date


class Counterpart(Section):
    """Overrides that give a recipe the size of a published run, and facts that the configuration does not show."""

    words: list[str] = Field(default_factory=list)
    states: dict[str, Value] = Field(default_factory=dict)


class Card(Section):
    """A published run; `hours` is the duration of the whole run on `hardware`."""

    run: str
    numbers: dict[str, float]
    hardware: str = UNKNOWN
    hours: float | None = None
    sources: list[SourcePage] = Field(min_length=1)
    settings: dict[str, Value]
    recipes: dict[str, Counterpart] = Field(default_factory=dict)


class Difference(NamedTuple):
    """A setting that differs between a published run and a recipe, or that is unknown for one of them."""

    setting: str
    published: Value
    here: Value

    def __str__(self) -> str:
        return f"{self.setting} {shown(self.published)} (here {shown(self.here)})"


class Comparison(NamedTuple):
    """The comparison of a recipe with a published run."""

    card: Card
    words: tuple[str, ...]
    differences: list[Difference]

    @property
    def figures(self) -> str:
        """The published figures."""
        return ", ".join(f"{name}: {number:g}" for name, number in self.card.numbers.items()) or "no figure"

    @property
    def known(self) -> list[Difference]:
        """The differences for which both values are known."""
        return [difference for difference in self.differences if UNKNOWN not in difference]

    @property
    def another_task(self) -> list[str]:
        """The differing settings that make the recipe a different task: other tools, or no test set in common."""
        return [difference.setting for difference in self.differences if _is_another_task(difference)]

    @property
    def verdict(self) -> str:
        """`same`, `same except for N settings`, or `another task`."""
        if self.another_task:
            return f"another task ({', '.join(self.another_task)})"
        count = len(self.differences)
        settings = f"{count} setting{'s' * (count > 1)}, {count - len(self.known)} of them unknown"
        return f"same except for {settings}" if count else "same"

    def plain(self) -> dict[str, Any]:
        """Return JSON data."""
        facts = {"run": self.card.run, "numbers": self.card.numbers, "words": self.words, "verdict": self.verdict}
        return {**facts, "differences": [difference._asdict() for difference in self.differences]}


def cards() -> dict[str, Card]:
    """Return all cards by name.

    Raises:
        ConfigError: a card is invalid; the error names the file, the line and the key.
    """
    known = {}
    for file in sorted((share_folder() / "recipes/published").glob("*.yaml")):
        known[file.stem] = validated(Card, read_yaml(file), Place(file=file))
        for name in known[file.stem].settings.keys() - SETTINGS.keys() - STATED.keys():
            place = Place(file=file) / "settings" / name
            raise place.error("there is no such setting", did_you_mean(name, [*SETTINGS, *STATED]))
    return known


def compare(recipe: str, overrides: Sequence[str] = ()) -> dict[str, Comparison]:
    """Compare each published run whose card names the recipe with the recipe in the size that the card selects.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides; `size=` restricts the comparison to cards that select this size.
    """
    name, sizes, compared = recipe_folder(recipe).name, {word for word in overrides if word.startswith("size=")}, {}

    @functools.cache
    def composed(words: tuple[str, ...]) -> RunCase:
        return RunCase(folder=share_folder(), config=compose(recipe, words))

    for key, card in cards().items():
        own = card.recipes.get(name)
        if own is not None and sizes <= set(own.words):
            words = (*own.words, *(word for word in overrides if word not in own.words))
            pairs = _pairs(card, own, composed(words), composed(tuple(own.words)))
            compared[key] = Comparison(card, words, [pair for pair in pairs if not _is_equal(pair)])
    return dict(sorted(compared.items(), key=lambda item: (bool(item[1].another_task), len(item[1].differences))))


def shown(value: Value) -> str:
    """Return a value as text."""
    if isinstance(value, list):
        return " + ".join(value) or NONE
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pairs(card: Card, own: Counterpart, case: RunCase, described: RunCase) -> Iterator[Difference]:
    """Yield each setting with its values on the card and in `case`; the card was written for `described`."""
    for name, reader in SETTINGS.items():
        here = case.get(reader, NONE) if isinstance(reader, str) else reader(case)
        yield Difference(name, card.settings.get(name, UNKNOWN), here)
    for name, keys in STATED.items():
        is_void = any(case.get(key) != described.get(key) for key in keys)
        yield Difference(name, card.settings.get(name, UNKNOWN), UNKNOWN if is_void else own.states.get(name, UNKNOWN))


def _is_equal(pair: Difference) -> bool:
    published, here = (set(map(_plain, side if isinstance(side, list) else [side])) for side in pair[1:])
    return UNKNOWN not in pair and published == here


def _plain(value: str | float) -> str | float:
    """Return a value in a comparable form: a number, or the last part of a path in lower case."""
    try:
        return float(value)
    except ValueError:
        return str(value).rpartition("/")[2].casefold()


def _is_another_task(pair: Difference) -> bool:
    published, here = (set(side if isinstance(side, list) else [side]) for side in pair[1:])
    return pair.setting == "tools" or (pair.setting == "test" and not published & here - {UNKNOWN})
