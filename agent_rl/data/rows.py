"""`make_row` makes one row, which follows the row contract, from a prompt and an answer.

A question with an answer:

    make_row(question="6 * 7?", data_source="gsm8k", ground_truth="42", split="train", index=0)

A row that selects tools and passes arguments to them:

    make_row(question="How many orders are open?", data_source="my/shop", ground_truth="3", split="train", index=1,
             tool_selection=["sql"], tools_kwargs={"sql": {"create_kwargs": {"database": "shop.sqlite"}}})

Images, as bytes or paths, one for each `<image>` in the prompt:

    make_row(prompt="<image>How many sides?", images=["hexagon.png"], data_source="hiyouga/geometry3k",
             ground_truth="6", split="train", index=2)

A conversation that has already started:

    make_row(prompt=[{"role": "system", "content": "Be short."}, {"role": "user", "content": "A prime over 10?"},
                     {"role": "assistant", "content": "11"}, {"role": "user", "content": "The next one?"}],
             data_source="gsm8k", ground_truth=13, split="train", index=3)

A simulated user who knows more than the first message reveals:

    make_row(question="Hello, I need help with my order.", data_source="my/shop", ground_truth="cancel 17",
             agent_name="user_sim_agent", split="train", index=4,
             extra_info={"user": {"replies": ["Please cancel it.", "It is order 17."]}})
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from agent_rl.data.contract import check_row
from agent_rl.data.shapes import as_image, as_messages, as_text
from agent_rl.errors import ConfigError

ToRow = Callable[..., dict[str, Any]]
"""`(example, split, index, **options) -> row`, which raises a ConfigError with the column as key."""

RESERVED_KEYS = {
    **{key: key for key in ("split", "index", "question", "tools_kwargs", "tool_selection")},
    "need_tools_kwargs": "tools_kwargs",  # make_row derives this key
}


def make_row(
    *,
    prompt: str | Sequence[Mapping[str, Any]] | None = None,
    question: str | None = None,
    data_source: str,
    ground_truth: Any,
    split: str,
    index: int | str,
    agent_name: str = "react_agent",
    ability: str = "math",
    style: str = "rule",
    extra_info: Mapping[str, Any] | None = None,
    tools_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    tool_selection: Sequence[str] | None = None,
    images: Sequence[Any] | None = None,
    videos: Sequence[str] | None = None,
    rm_prompt: str | Sequence[Mapping[str, Any]] | Mapping[str, str | Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Build one row and check it against the row contract.

    Args:
        prompt: the messages of the prompt, which end with a user message, or a string, or content parts (a list of
            `{"type": "image" | "video" | "text", ...}`). None means one user message with `question`.
        question: the question without instructions, stored in `extra_info.question`; None means the text of the
            prompt's last message.
        data_source: name of the data set, which selects the scorer and groups the metrics.
        ground_truth: the right answer: a number (stored as text), text, or the list or mapping that the scorer reads.
        split: `train`, `test`, ...
        index: number or name of the row within its split.
        agent_name: registered name of the agent loop.
        ability: label for the kind of task.
        style: `rule`, or `model` or `environment` if a reward model or the environment judges the answer, so that
            `ground_truth` may be None.
        extra_info: additional JSON data of the row: `user`, `difficulty`, `original_prompt`, `interaction_kwargs`, or
            your own keys; scorers get all these keys.
        tools_kwargs: arguments of the tools for this row, `{tool: {"create_kwargs": {...}}}`.
        tool_selection: names of the only tools that this row may use; None means all tools.
        images: bytes, paths, `{"bytes": ...}`, `{"path": ...}` or pillow images, one for each `<image>` in the prompt.
        videos: paths, one for each `<video>` in the prompt.
        rm_prompt: the prompt that judges and reward models get, as text or messages; a mapping contains one prompt per
            component or model, by name.

    Raises:
        ConfigError: the row breaks the contract; the error names the row, column, value and remedy.
    """
    place = f"{data_source}, {split} row {index}"
    if prompt is None:
        if question is None:
            raise ConfigError(f"{place}, column prompt", "both prompt and question are missing", "Pass one of the two")
        prompt = [{"role": "user", "content": question}]
    messages, pictures, films = as_messages(prompt, f"{place}, column prompt")
    no_truth = ground_truth is None and style in ("model", "environment")
    row: dict[str, Any] = {
        "data_source": data_source,
        "agent_name": agent_name,
        "prompt": messages,
        "ability": ability,
        "reward_model": {"style": style} | ({} if no_truth else {"ground_truth": as_text(ground_truth)}),
        "extra_info": {
            "split": split,
            "index": index,
            "question": question if question is not None or not messages else messages[-1]["content"],
            **(extra_info or {}),
            **({"need_tools_kwargs": True, "tools_kwargs": tools_kwargs} if tools_kwargs else {}),
        },
    }
    for key, argument in RESERVED_KEYS.items():
        if key in (extra_info or {}):
            raise ConfigError(f"{place}, column extra_info.{key}", "the key is reserved", f"Use make_row's {argument}")
    if tool_selection is not None:
        names = tool_selection if isinstance(tool_selection, str) else list(tool_selection)
        row["extra_info"]["tool_selection"] = names
    if media := [as_image(image) for image in (*(images or ()), *pictures)]:
        row["images"] = media
    if media := [*(videos or ()), *films]:
        row["videos"] = media
    if isinstance(rm_prompt, Mapping):
        for name, text in rm_prompt.items():
            row["extra_info"][f"rm_prompt.{name}"] = as_messages(text, f"{place}, column rm_prompt.{name}")[0]
    elif rm_prompt is not None:
        row["rm_prompt"] = as_messages(rm_prompt, f"{place}, column rm_prompt")[0]
    check_row(row, place)
    return row


def makes_row(arguments_of: Callable[..., dict[str, Any]]) -> ToRow:
    """Decorate a function that returns `make_row`'s arguments for an example, so that it returns the row instead.

    Args:
        arguments_of: takes the example; `split`, `index` and options are passed only if it has parameters for them.

    Returns:
        `(example, split, index, **options) -> row`; options that `arguments_of` does not take go to `make_row`.
    """
    names = list(signature(arguments_of).parameters)[1:]

    @functools.wraps(arguments_of)
    def to_row(example: Any, split: str, index: int, **options: Any) -> dict[str, Any]:
        known = {"split": split, "index": index, **options}
        arguments = arguments_of(example, **{name: known[name] for name in names if name in known})
        further = {name: value for name, value in options.items() if name not in names}
        return make_row(**{"split": split, "index": index, **arguments}, **further)

    del vars(to_row)["__wrapped__"]  # otherwise help() would show the parameters of `arguments_of`
    return to_row
