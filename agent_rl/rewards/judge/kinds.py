"""The kinds of prompt templates, which ask for a score, for the better of two answers, or for a score per criterion.

    template: my/template.py:Helpfulness        # a setting of a judge, a pairwise judge, or a reward model

A prompt template is a class that writes the prompts of a judge model, both for its training and for its verdicts. The
prompt asks for thoughts, unless the request's `chat_template_kwargs.enable_thinking` already does so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeGuard, get_args

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import Winner, winner
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object

KINDS = {"score": "pointwise", "preference": "pairwise", "scores": "rubric"}
"""Kinds of prompt templates, by the name of the verdict's field."""


class PointwiseTemplate(BasePromptTemplate):
    """Asks for one score for one answer, on HelpSteer2's scale."""

    score: int = Field(description="a whole number from 0 (worst) to 4 (best)", ge=0, le=4)


class PairwiseTemplate(BasePromptTemplate):
    """Asks which of two answers to a question is better."""

    desc: ClassVar[str] = "Judge which response serves the query better. Neither their order nor their length counts."

    preference: Annotated[Winner, BeforeValidator(winner)] = Field(description="the better answer: A, B, or tie")

    @classmethod
    def _answers(cls, answer: str, **kwargs: Any) -> list[tuple[str, str]]:
        return [(f"Response {side.upper()}", str(kwargs.get(f"response_{side}") or "")) for side in "ab"]


class RubricTemplate(BasePromptTemplate):
    """Asks for a score from 0 to 4 for one answer on each of several criteria."""

    desc: ClassVar[str] = "Judge the answer by each of the criteria, on its own."

    scores: dict[str, Annotated[float, Field(ge=0, le=4)]] = Field(
        description='a number from 0 (worst) to 4 (best) for each criterion, such as {"clear": 3}', min_length=1
    )

    @classmethod
    def _criteria(cls, **kwargs: Any) -> list[tuple[str, str]]:
        criteria: Mapping[str, str] = kwargs.get("criteria") or {}
        return [("Criteria", "\n".join(f"- {name}: {text}" for name, text in criteria.items()))]


TEMPLATES: dict[str, type[BasePromptTemplate]] = {
    "pointwise": PointwiseTemplate,
    "pairwise": PairwiseTemplate,
    "rubric": RubricTemplate,
}


def find_template(name: str, key: str = "template", *fields: str) -> type[BasePromptTemplate]:
    """Return a prompt template by its name.

    Args:
        name: `pointwise`, `pairwise`, `rubric`, or a class as `package.module.Name` or `path/to/file.py:Name`.
        key: the configuration key of the name, used in error messages.
        fields: the verdict must have at least one of these fields; if `fields` is empty, any verdict is accepted.

    Raises:
        ConfigError: the template does not exist, or its verdict has none of the fields.
    """
    template = TEMPLATES.get(name) or find_object(name, Place(key), known=TEMPLATES)
    if not (isinstance(template, type) and issubclass(template, BasePromptTemplate)):
        remedy = f"Derive the class from BasePromptTemplate. {did_you_mean(name, TEMPLATES)}"
        raise ConfigError(key, f"{name!r} is not a prompt template", remedy)
    if fields and not set(fields) & template.model_fields.keys():
        problem = f"the verdict of {name} has only the fields {', '.join(template.model_fields)}"
        raise ConfigError(key, problem, f"Add the field {' or '.join(fields)}")
    return template


def kind_of(template: type[BasePromptTemplate]) -> str:
    """Return a template's kind, `pointwise`, `pairwise` or `rubric`, determined by the field of its verdict.

    Raises:
        ConfigError: the verdict has none of the fields in `KINDS`.
    """
    for field, kind in KINDS.items():
        if field in template.model_fields:
            return kind
    problem = f"its verdict has only the fields {', '.join(template.model_fields)}"
    raise ConfigError(f"template {template.__name__}", problem, f"Add one of the fields {', '.join(KINDS)}")


def scale_of(template: type[BasePromptTemplate]) -> tuple[float, float] | None:
    """Return the bounds of the `score` field, or of each score in `scores`; None if a bound is missing."""
    field, bounds = template.model_fields.get("score"), dict[str, float]()
    if field is None and "scores" in template.model_fields:
        field = FieldInfo.from_annotation((get_args(template.model_fields["scores"].annotation) or (Any,))[-1])
    for bound in getattr(field, "metadata", ()):
        bounds |= {name: float(value) for name in ("ge", "le") if (value := getattr(bound, name, None)) is not None}
    return (bounds["ge"], bounds["le"]) if len(bounds) == 2 else None


def names_a_class(template: str | None) -> TypeGuard[str]:
    """Whether the configuration's `template` names a class rather than a file."""
    if template is None or template.endswith((".md", ".txt")):
        return False
    return ".py:" in template or ("/" not in template and "." in template)


def chat_thinks(body: Mapping[str, Any]) -> bool:
    """Whether the fields of a request make the chat template ask the model to think."""
    return bool((body.get("chat_template_kwargs") or {}).get("enable_thinking"))
