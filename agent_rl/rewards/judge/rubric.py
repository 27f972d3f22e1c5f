"""Rubrics: what is judged, criterion by criterion, and what each counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from agent_rl.errors import ConfigError
from agent_rl.rewards.component import ComponentConfig
from agent_rl.rewards.judge.fence import harmless

__all__ = ["Criterion", "as_text", "load_rubric", "read_rubric", "weighted"]


class Criterion(ComponentConfig):
    """One thing that is judged on its own."""

    name: str = Field(pattern=r"^\w+$")
    description: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)
    """Its share in the value, beside the others' weights."""


_RUBRIC: TypeAdapter[list[Criterion]] = TypeAdapter(Annotated[list[Criterion], Field(min_length=1)])


def load_rubric(path: str, key: str) -> list[Criterion]:
    """Read a YAML file that lists criteria.

    Raises:
        ConfigError: it cannot be read, or is no rubric.
    """
    try:
        data = yaml.safe_load(Path(path).expanduser().read_text("utf-8"))
        return read_rubric(data)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        remedy = "Name a YAML file that lists criteria, each with name, description and weight"
        raise ConfigError(key, f"the rubric {path} cannot be read ({error})", remedy) from error


def read_rubric(data: Any) -> list[Criterion]:
    """Criteria from data.

    Raises:
        ValueError: they are none, or a name occurs twice.
    """
    try:
        criteria = _RUBRIC.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'rubric'}: {first['msg']}") from None
    twice = [name for name, count in Counter(each.name for each in criteria).items() if count > 1]
    if twice:
        raise ValueError(f"the criterion {twice[0]!r} occurs twice")
    return criteria


def as_text(criteria: Sequence[Criterion]) -> str:
    """As the judge reads them."""
    return "\n".join(f"- {each.name}: {harmless(each.description)}" for each in criteria)


def weighted(criteria: Sequence[Criterion], values: Sequence[float]) -> float:
    """The mean of the values by the criteria's weights."""
    total = sum(each.weight for each in criteria)
    return sum(each.weight * value for each, value in zip(criteria, values, strict=True)) / total
