"""The tokens of what surrounds a turn, without rendering and encoding a whole conversation for them.

verl's token builder finds the tokens of new messages by rendering a made-up conversation without and with them,
encoding both, and taking what the second has more. Here the one without is remembered, over all trajectories of a
worker, and of the other only what is new is encoded. That gives the same tokens where the new text begins with a
special token, which never merges with what stands before it; for every such conversation this is compared once with
what verl does, and where it is not so, verl does it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from verl.utils.tokenizer.chat_template import apply_chat_template
from verl.utils.tokenizer.continuous_token import _SYNTHETIC_SYSTEM_MESSAGE, ContinuousTokenBuilder

__all__ = ["MOST", "remembering"]

MOST = 256
"""Made-up conversations that are remembered for one template; then all are forgotten."""


class _Prefix(NamedTuple):
    tools: Any  # kept, so that its id stays its own
    text: str | None
    """None where verl's own way is the only one."""


class _Template:
    """One tokenizer with one chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.specials = tuple(tokenizer.all_special_tokens)
        self.prefixes: dict[tuple[str, int], _Prefix] = {}


_templates: dict[tuple[int, type, str, str], _Template] = {}


def remembering(builder: Any) -> Any:
    """Give the builder a quicker way to the same tokens, where there is one, and return it."""
    if type(builder)._render_tokens is not ContinuousTokenBuilder._render_tokens:
        return builder  # it renders images as well
    tokenizer, options = builder.tokenizer, builder.chat_template_kwargs
    key = (id(tokenizer), type(builder), str(tokenizer.chat_template), repr(options))
    template = _templates.get(key) or _templates.setdefault(key, _Template(tokenizer))
    verls = builder.render_delta_token_id

    def delta(
        prefix_messages: list[dict[str, Any]],
        appended_messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = False,
        tools: Any = None,
    ) -> list[int]:
        def new_text(prefix: str) -> str | None:
            messages = prefix_messages + appended_messages
            text = _text(tokenizer, messages, tools, options, add_generation_prompt=add_generation_prompt)
            new = text[len(prefix) :] if text.startswith(prefix) else ""
            return new if new.startswith(template.specials) else None

        def as_verl() -> list[int]:
            ids: list[int] = verls(
                prefix_messages, appended_messages, add_generation_prompt=add_generation_prompt, tools=tools
            )
            return ids

        if not prefix_messages or prefix_messages[0] is not _SYNTHETIC_SYSTEM_MESSAGE:
            return as_verl()
        known = template.prefixes.get(place := (repr(prefix_messages), id(tools)))
        if known is None:
            ids = as_verl()
            prefix = _text(tokenizer, prefix_messages, tools, options, add_generation_prompt=False)
            new = new_text(prefix)
            same = new is not None and tokenizer.encode(new, add_special_tokens=False) == ids
            if len(template.prefixes) == MOST:
                template.prefixes.clear()
            template.prefixes[place] = _Prefix(tools, prefix if same else None)
            return ids
        new = None if known.text is None else new_text(known.text)
        if new is None:
            return as_verl()
        quick: list[int] = tokenizer.encode(new, add_special_tokens=False)
        return quick

    builder.render_delta_token_id = delta
    return builder


def _text(tokenizer: Any, messages: Any, tools: Any, options: dict[str, Any], *, add_generation_prompt: bool) -> str:
    return str(
        apply_chat_template(
            tokenizer,
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            **options,
        )
    )
