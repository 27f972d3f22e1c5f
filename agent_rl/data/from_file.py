"""Converts your own data set into rows: CSV, JSON, JSON lines, parquet, or a data set from the Hub.

    agent-rl data convert problems.csv --prompt question --answer answer

A mapping on the command line or in a YAML file (`--mapping`) selects the columns; the mapping's keys are the fields of
`ColumnMapping`. If neither `--prompt` nor `--template` is given, a row must be in a shape that `agent_rl.data.as_row`
reads (`prompt`, `messages`, `conversations`, ...). Columns that are not in the mapping are kept in `extra_info`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agent_rl.data.conversion import RawSet, text_of, value_of
from agent_rl.data.rows import RESERVED_KEYS, make_row
from agent_rl.data.shapes import as_row, as_text, without_further_columns
from agent_rl.errors import ConfigError, reason_of
from agent_rl.settings.errors import Place, read_yaml, validated


class ColumnMapping(BaseModel):
    """The columns of the prompt, the answer and other data, and the values that all rows share."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    prompt: str | None = None
    """Column with the question: text, messages or content parts."""
    answer: str | None = None
    """Column with the right answer: text, a number, or a list or mapping that your scorer reads."""
    id: str | None = None
    """Column with the row's name; if null, rows are numbered."""
    template: str | None = None
    """Jinja file that renders the prompt from the columns, for example `{{ question }} Options: {{ options }}`."""
    system: str | None = None
    """Text of a system message before the prompt."""
    images: str | None = None
    """Column with an image (path or bytes), or a list of images."""
    data_source: str = "own/from_file"
    """Name of the data set, which selects the scorer and groups metrics."""
    ability: str = "general"
    """Label for the kind of task."""
    style: str = "rule"
    """`rule`, or `model` or `environment` if a reward model or a program judges; the answer is then optional."""

    @cached_property
    def _template(self) -> Any:
        import jinja2
        from jinja2.sandbox import SandboxedEnvironment

        path = Path(self.template or "").expanduser()
        try:
            environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined)
            return environment.from_string(path.read_text(encoding="utf-8"))
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"{path}:{error.lineno}", str(error), "Correct the template") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "--template", f"{path} cannot be read ({reason_of(error)})", "Pass a Jinja file"
            ) from error

    def rendered(self, example: Mapping[str, Any]) -> Any:
        """Return the prompt for an example.

        Raises:
            ConfigError: the template cannot be read, or uses a column that the example does not have.
        """
        if self.template is None:
            value = value_of(example, str(self.prompt))
            return text_of(example, str(self.prompt)) if isinstance(value, str | int | float) else value
        import jinja2

        try:
            return self._template.render(**{str(key): value for key, value in example.items()})
        except jinja2.TemplateError as error:
            has = f"The columns are {', '.join(map(str, example))}"
            raise ConfigError(f"template {self.template}", str(error), has) from error


def to_row(
    example: Mapping[str, Any], split: str, index: int, *, mapping: ColumnMapping, **options: Any
) -> dict[str, Any]:
    """Convert an example to a row.

    Args:
        example: the columns of the example.
        split: split of the row.
        index: number of the row in its split; the mapping's `id` column overrides this number.
        mapping: the column mapping.
        options: additional arguments of `make_row`.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    if mapping.prompt is None and mapping.template is None:
        return _from_known_shape(example, split, index, mapping, **options)
    prompt = mapping.rendered(example)
    question = text_of(example, mapping.prompt) if mapping.prompt and isinstance(prompt, str) else None
    if mapping.system is not None:
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        prompt = [{"role": "system", "content": mapping.system}, *turns]
    mapped = {mapping.prompt, mapping.answer, mapping.id, mapping.images}
    images = value_of(example, mapping.images) if mapping.images else None
    return make_row(
        prompt=prompt,
        question=question,
        data_source=mapping.data_source,
        ground_truth=_answer(example, mapping),
        split=split,
        index=value_of(example, mapping.id) if mapping.id else index,
        ability=mapping.ability,
        style=mapping.style,
        images=images if images is None or isinstance(images, list) else [images],
        extra_info={name: value for name, value in example.items() if name not in {*mapped, *RESERVED_KEYS}},
        **options,
    )


def _answer(example: Mapping[str, Any], mapping: ColumnMapping) -> Any:
    """Return the right answer, or None if no column contains it, or it is optional and missing."""
    column = mapping.answer
    if column is None or (mapping.style != "rule" and example.get(column) in (None, "")):  # a CSV file has no null
        return None
    value = value_of(example, column)
    if isinstance(value, bool):
        raise ConfigError(f"column {column}", f"expected an answer, got {value}", "Write it as text, such as yes or no")
    return text_of(example, column) if isinstance(value, str) else value


def _from_known_shape(
    example: Mapping[str, Any],
    split: str,
    index: int,
    mapping: ColumnMapping,
    *,
    agent_name: str,
    tool_selection: list[str] | None = None,
) -> dict[str, Any]:
    """Convert an example that is already a row in a shape that `as_row` reads; keys of the mapping take precedence."""
    defaults = {"data_source": mapping.data_source, "agent_name": agent_name, "ability": mapping.ability}
    given = mapping.model_dump(include=mapping.model_fields_set & {"data_source", "ability", "style"})
    columns = {name: value for name, value in example.items() if value is not None}
    row, _ = as_row(defaults | columns | given, number=index)
    if row.get("prompt") is None:
        remedy = "Set the question's column with --prompt and the answer's column with --answer"
        raise ConfigError("column prompt", f"the file has only the columns {', '.join(map(str, example))}", remedy)
    if not isinstance(row["extra_info"], dict) or not isinstance(model := row.get("reward_model", {}), dict):
        return row  # `check_row` reports the column
    truth = {"style": given.get("style"), "ground_truth": as_text(_answer(example, mapping))}
    row["reward_model"] = model | {name: value for name, value in truth.items() if value is not None}
    info = row["extra_info"] | {"split": split}
    if tool_selection is not None:
        info["tool_selection"] = tool_selection
    return without_further_columns(row | {"extra_info": info})


def _prepare(options: dict[str, Any]) -> dict[str, Any]:
    path = options.pop("mapping")
    values = {name: value for name, value in options.items() if value is not None}
    file = Path(path).expanduser() if path else None
    content = read_yaml(file) if file else {}
    if not isinstance(content, Mapping):
        raise ConfigError("--mapping", f"{file} is not a mapping", "Write keys such as `prompt: question`")
    mapping = validated(ColumnMapping, dict(content) | values, Place(file=file))
    for name in ("id", "system", "images"):
        if mapping.prompt is None and mapping.template is None and getattr(mapping, name) is not None:
            remedy = "Set the column of the question or the messages with --prompt"
            raise ConfigError(f"--{name}", "it has no effect without --prompt or --template", remedy)
    return {"mapping": mapping}


_ARGUMENTS = {
    **{
        f"--{name}": {
            "metavar": "<str>",
            "help": str(field.description).rstrip(".") + (f", default: {field.default}" if field.default else ""),
        }
        for name, field in ColumnMapping.model_fields.items()
    },
    "--mapping": {"metavar": "<path>", "help": "YAML file that sets these keys; options take precedence"},
}
FROM_FILE = RawSet("from_file", to_row, arguments=_ARGUMENTS, prepare=_prepare, test_share=0.05)
