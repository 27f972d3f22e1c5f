"""Converts rows in common shapes to the row contract, and reports the changes.

    row, changes = as_row({"prompts": "6 * 7?", "ground_truth": "42", "data_source": "gsm8k"}, number=0)

A row that follows the contract is returned unchanged. A row in another shape may have:

- a `prompts`, `messages` or `conversations` column (ShareGPT: `from`, `value`) instead of `prompt`
- a prompt that is a single string, or a list of content parts without roles; a message whose content is a list of
  parts; images and videos among the parts move to the `images` and `videos` columns
- the assistant's answer at the end of the prompt, which is not part of the question
- `ground_truth`, `style` or `test_cases` at the top level; a null `ground_truth` next to `test_cases`
- `available_tools`, `tool_config` and `tool_format`
- no `extra_info`, or `index` and `split` at the top level
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any

from agent_rl.data.contract import IMAGE, VIDEO, Row
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError

PROMPTS = ("prompts", "messages", "conversations")
_KEYS = {"reward_model": ("ground_truth", "style", "test_cases"), "extra_info": ("index", "split")}
"""For two columns of the contract, the keys that rows in other shapes store as columns."""
_TOOLS = ("available_tools", "tool_config", "tool_format")
SHAPE_COLUMNS = frozenset({*PROMPTS, *_TOOLS, *_KEYS["reward_model"], *_KEYS["extra_info"]})
"""Columns that the contract does not have, and whose values `as_row` moves."""
SPEAKERS = {"human": "user", "gpt": "assistant", "observation": "tool", "function_call": "assistant"}
_MARKS = {"image": IMAGE, "image_url": IMAGE, "video": VIDEO, "video_url": VIDEO}


def as_row(raw: Mapping[str, Any], *, number: int = 0, place: str = "") -> tuple[dict[str, Any], list[str]]:
    """Convert a row to the contract as far as possible; return the row and a list of the changes.

    Args:
        raw: the row's columns, as stored or in one of the shapes that the module's docstring lists.
        number: number of the row in its file, used as `extra_info.index` if the row has none.
        place: location of the row, for error messages.

    Raises:
        ConfigError: the prompt or the tools have an unknown shape.
    """
    row = unpacked(raw)
    changes: list[str] = []
    _move_prompt(row, changes.append, place)
    for column, names in _KEYS.items():
        values = row.get(column) or {}
        moved = {name: row.pop(name) for name in names if name in row}
        if isinstance(values, Mapping):  # if it is not a mapping, `check_row` reports it
            moved = {name: value for name, value in moved.items() if value is not None and values.get(name) is None}
            row[column] = {**values, **moved}
            changes += [f"{name} moved into {column}" for name in moved]
    _complete(row, changes.append, number)
    _move_tools(row, changes.append, place)
    return row, changes


def without_further_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose columns that are not in the contract have moved into `extra_info`."""
    further = {name: value for name, value in row.items() if name not in Row.model_fields}
    own = {name: value for name, value in row.items() if name in Row.model_fields}
    return own | {"extra_info": further | row["extra_info"]}


def as_messages(prompt: Any, place: str) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Return messages with plain text as content, and the images and videos from their content parts.

    Args:
        prompt: text, content parts, or messages whose content is text or parts.
        place: location of the prompt, for error messages.

    Raises:
        ConfigError: the prompt has none of these forms.
    """
    images: list[Any] = []
    videos: list[Any] = []
    if isinstance(prompt, str) or _is_parts(prompt):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list | tuple) or not all(isinstance(message, Mapping) for message in prompt):
        raise ConfigError(place, f"{prompt!r:.80} is not a prompt", "Write [{'role': 'user', 'content': ...}]")
    messages = []
    for message in prompt:
        role, content = message.get("role"), message.get("content")
        if role is None and "from" in message:
            role, content = SPEAKERS.get(message["from"], message["from"]), message.get("value")
        further = {key: value for key, value in message.items() if key not in ("role", "content", "from", "value")}
        text = _flat(content, images, videos, place) if _is_parts(content) else content
        messages.append({"role": role, "content": text, **{key: value for key, value in further.items() if value}})
    return messages, images, videos


def _move_prompt(row: dict[str, Any], changed: Callable[[str], None], place: str) -> None:
    if row.get("prompt") is None:
        name = next((name for name in PROMPTS if row.get(name) is not None), None)
        if name is None:
            return
        row["prompt"] = row.pop(name)
        changed(f"{name} is read as prompt")
    prompt = row["prompt"]
    messages, images, videos = as_messages(prompt, f"{place}, column prompt".lstrip(", "))
    if isinstance(prompt, str):
        changed("a prompt given as text became a user message")
    elif _is_parts(prompt):
        changed("a prompt given as content parts became a user message")
    elif any("from" in message for message in prompt):
        changed("turns in ShareGPT's form (from, value) became messages")
    elif any(_is_parts(message.get("content")) for message in prompt):
        changed("content parts of messages became text")
    for name, media in (("images", images), ("videos", videos)):
        if media:
            row[name] = [*(row.get(name) or ()), *media]
            changed(f"{name} among the content parts moved to the {name} column")
    if len(messages) > 1 and messages[-1]["role"] == "assistant":
        _move_answer(row, messages.pop()["content"], changed)
    row["prompt"] = messages


def _move_answer(row: dict[str, Any], answer: Any, changed: Callable[[str], None]) -> None:
    """Take the assistant's last turn out of the prompt; the turn becomes the ground truth if the row has none."""
    info, model = (row.get(column) or {} for column in ("extra_info", "reward_model"))
    if not isinstance(info, Mapping) or not isinstance(model, Mapping):
        return  # `check_row` reports the column
    row["extra_info"] = {**info, "answer": answer}
    if model.get("ground_truth", row.get("ground_truth")) is None:
        row["ground_truth"] = answer
        changed("the assistant's last turn is read as ground_truth, not as part of the prompt")
    else:
        changed("the assistant's last turn moved to extra_info.answer")


def _complete(row: dict[str, Any], changed: Callable[[str], None], number: int) -> None:
    """Use tests as a missing ground truth, convert a ground truth that is a number to text, and number the row."""
    model, info = row["reward_model"], row["extra_info"]
    if not isinstance(model, dict) or not isinstance(info, dict):
        return
    if model.get("ground_truth") is None:
        tests = model.pop("test_cases", None)
        tests = tests if tests is not None else info.get("test_cases")
        if tests is not None:
            model["ground_truth"] = tests
            changed("test_cases are read as ground_truth, because ground_truth is null")
    truth = model.get("ground_truth")
    if (text := as_text(truth)) is not truth:
        model["ground_truth"] = text
        changed("ground truths given as numbers became text")
    if not model:
        del row["reward_model"]
    if info.get("index") is None:
        info["index"] = number
        changed("rows without extra_info.index are numbered")
    if isinstance(kwargs := info.get("tools_kwargs"), Mapping):  # a typed table fills missing values with null
        info["tools_kwargs"] = {tool: value for tool, value in kwargs.items() if value is not None}


def _move_tools(row: dict[str, Any], changed: Callable[[str], None], place: str) -> None:
    info = row["extra_info"]
    if not isinstance(info, dict):
        return
    tools, config, syntax = (row.pop(name, None) for name in _TOOLS)
    if tools is not None:
        names = [_tool_name(tool) for tool in tools] if isinstance(tools, list | tuple) else None
        if not names or None in names:
            problem, remedy = f"{tools!r:.80} is not a list of tools", "Write the names of the row's tools"
            raise ConfigError(f"{place}, column available_tools".lstrip(", "), problem, remedy)
        info["tool_selection"] = names
        changed("available_tools is read as extra_info.tool_selection")
    if isinstance(config, Mapping):
        info["tools_kwargs"] = {
            name: value if isinstance(value, Mapping) and "create_kwargs" in value else {"create_kwargs": value or {}}
            for name, value in config.items()
        }
        info["need_tools_kwargs"] = True
        changed("tool_config is read as extra_info.tools_kwargs")
    elif config is not None:
        key = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
        changed(f"tool_config is ignored, because a run has one tool file: set {key}={config}")
    if syntax is not None:
        changed(f"tool_format is ignored: set actor_rollout_ref.rollout.multi_turn.format={syntax}")


def _is_parts(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(part, Mapping) and "type" in part and part.get("role") is None for part in value)
    )


def _flat(parts: Any, images: list[Any], videos: list[Any], place: str) -> str:
    texts = []
    for part in parts:
        kind = part["type"]
        if kind == "text":
            texts.append(str(part.get("text") or ""))
        elif mark := _MARKS.get(kind):
            medium = next((part[key] for key in (kind, "image", "video", "path", "bytes") if part.get(key)), None)
            if isinstance(medium, Mapping) and "url" in medium:
                medium = medium["url"]
            if medium is not None:
                (images if mark == IMAGE else videos).append(as_image(medium) if mark == IMAGE else medium)
            texts.append(mark)
        else:
            raise ConfigError(place, f"a content part has the type {kind!r}", "Use text, image and video")
    return "".join(texts)


def as_image(image: Any) -> Any:
    """Return an image in its stored form: `{"bytes": ...}` or `{"path": ...}`."""
    if isinstance(image, Mapping):
        return image
    if hasattr(image, "save"):  # a pillow image
        image.save(buffer := io.BytesIO(), format="PNG")
        return {"bytes": buffer.getvalue()}
    return {"bytes": bytes(image)} if isinstance(image, bytes | bytearray) else {"path": os.fspath(image)}


def as_text(value: Any) -> Any:
    """Return a finite number as text, and any other value unchanged."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0
    return str(value) if is_number else value


def _tool_name(tool: Any) -> str | None:
    if isinstance(tool, Mapping):
        tool = (tool.get("function") or tool).get("name")
    return tool if isinstance(tool, str) and tool else None
