"""Rows from a data set of your own: CSV, JSON, JSON lines, parquet, or a set of the hub.

    agent-rl data convert problems.csv --prompt question --answer answer

A mapping says which column is what; it stands on the command line or in a YAML file (`--mapping`), whose keys are the
fields of `ColumnMapping`. Without `--prompt` and `--template` a row must be in a shape that `agent_rl.data.as_row`
reads (`prompt`, `messages`, `conversations`, ...). Columns that the mapping does not name are kept in `extra_info`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agent_rl.data.contract import Row
from agent_rl.data.conversion import RawSet, text_of, value_of
from agent_rl.data.rows import RESERVED_KEYS, make_row
from agent_rl.data.shapes import as_row
from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.yaml_files import read_yaml

__all__ = ["FROM_FILE", "ColumnMapping", "to_row"]


class ColumnMapping(BaseModel):
    """Which column is what, and what all rows have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = None
    """Column with the question: text, messages or content parts."""
    answer: str | None = None
    """Column with the right answer: text, a number, or a list or mapping that your scorer reads."""
    id: str | None = None
    """Column with the row's name; without it, rows are numbered."""
    template: str | None = None
    """Jinja file that makes the prompt of all columns, for example `{{ question }} Options: {{ options }}`."""
    system: str | None = None
    """Text of a system message before the prompt."""
    images: str | None = None
    """Column with an image (a path, bytes), or a list of them."""
    data_source: str = "own/from_file"
    """Name of the data set, which chooses the scorer and groups metrics."""
    ability: str = "general"
    """Label of the kind of task."""
    style: str = "rule"
    """`model` where a reward model judges: then the answer may be missing."""

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
            raise ConfigError("--template", f"{path} cannot be read ({error})", "Name a Jinja file") from error

    def rendered(self, example: Mapping[str, Any]) -> Any:
        """The prompt of a row.

        Raises:
            ConfigError: the template cannot be read, or uses a column that the row does not have.
        """
        if self.template is None:
            value = value_of(example, str(self.prompt))
            return text_of(example, str(self.prompt)) if isinstance(value, str | int | float) else value
        import jinja2

        try:
            return self._template.render(**{str(key): value for key, value in example.items()})
        except jinja2.TemplateError as error:
            has = f"It has the columns {', '.join(map(str, example))}"
            raise ConfigError(f"template {self.template}", str(error), has) from error


def to_row(
    example: Mapping[str, Any], split: str, index: int, *, mapping: ColumnMapping, **options: Any
) -> dict[str, Any]:
    """One row of one example.

    Args:
        example: its columns.
        split: of the row.
        index: of the row in its split, unless the mapping names a column.
        mapping: which column is what.
        options: further arguments of `make_row`.

    Raises:
        ConfigError: naming the column that is missing or cannot be used.
    """
    if mapping.prompt is None and mapping.template is None:
        return _of_shape(example, split, index, mapping, **options)
    prompt = mapping.rendered(example)
    question = text_of(example, mapping.prompt) if mapping.prompt and isinstance(prompt, str) else None
    if mapping.system is not None:
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        prompt = [{"role": "system", "content": mapping.system}, *turns]
    used = {mapping.prompt, mapping.answer, mapping.id, mapping.images}
    images = value_of(example, mapping.images) if mapping.images else None
    answered = mapping.answer is not None and (mapping.style == "rule" or example.get(mapping.answer) is not None)
    return make_row(
        prompt=prompt,
        question=question,
        data_source=mapping.data_source,
        ground_truth=_answer(example, str(mapping.answer)) if answered else None,
        split=split,
        index=value_of(example, mapping.id) if mapping.id else index,
        ability=mapping.ability,
        style=mapping.style,
        images=images if images is None or isinstance(images, list) else [images],
        extra_info={name: value for name, value in example.items() if name not in {*used, *RESERVED_KEYS}},
        **options,
    )


def _answer(example: Mapping[str, Any], column: str) -> Any:
    value = value_of(example, column)
    if isinstance(value, bool):
        raise ConfigError(f"column {column}", f"expected an answer, got {value}", "Write it as text, such as yes or no")
    return text_of(example, column) if isinstance(value, str) else value


def _of_shape(
    example: Mapping[str, Any],
    split: str,
    index: int,
    mapping: ColumnMapping,
    *,
    agent_name: str,
    tool_selection: list[str] | None = None,
) -> dict[str, Any]:
    """The row of an example that is one already, in any shape that guides show."""
    defaults = {"data_source": mapping.data_source, "agent_name": agent_name, "ability": mapping.ability}
    row, _ = as_row(defaults | {name: value for name, value in example.items() if value is not None}, number=index)
    if row.get("prompt") is None:
        remedy = "Name the column of the question with --prompt and that of the answer with --answer"
        raise ConfigError("column prompt", f"there is none among {', '.join(map(str, example))}", remedy)
    info = {"split": split} | row["extra_info"]
    if tool_selection is not None:
        info["tool_selection"] = tool_selection
    further = {name: row.pop(name) for name in list(row) if name not in Row.model_fields}
    return row | {"extra_info": further | info}


def _prepared(options: dict[str, Any]) -> dict[str, Any]:
    path = options.pop("mapping")
    given = {name: value for name, value in options.items() if value is not None}
    file = Path(path).expanduser() if path else None
    written = read_yaml(file) if file else {}
    if not isinstance(written, Mapping):
        raise ConfigError("--mapping", f"{file} is no mapping", "Write keys such as `prompt: question`")
    return {"mapping": validated(ColumnMapping, dict(written) | given, Place(file=file))}


_ARGUMENTS = {
    **{
        f"--{name}": {"metavar": "TEXT", "help": f"default: {field.default}"}
        for name, field in ColumnMapping.model_fields.items()
    },
    "--mapping": {"metavar": "YAML", "help": "file with these keys, instead of options"},
}
FROM_FILE = RawSet("from_file", to_row, arguments=_ARGUMENTS, prepare=_prepared, test_share=0.05)
