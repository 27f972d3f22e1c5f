"""A cache for verl's token builder: the same tokens of a conversation and of the text around a turn, in less time.

verl's builder finds the tokens of new messages by rendering a made-up conversation without and with them, encoding
both, and taking what the second has more. Here the first is cached for all trajectories of a worker, and of the
second only the new text is encoded. That gives the same tokens where the new text begins with a special token, which
never merges with what stands before it. Template and tokenizer are called directly: the wrappers of
transformers take longer than they do.

For every kind of conversation the tokens are compared once with verl's, and where they differ, verl renders them. The
samples of a prompt begin alike and often get the same results, so recent renderings are cached.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from transformers.utils.chat_template_utils import render_jinja_template
from verl.utils.tokenizer.continuous_token import _SYNTHETIC_SYSTEM_MESSAGE, ContinuousTokenBuilder

__all__ = ["MOST", "remembering"]

MOST = 256
"""Entries of each cache of one template; a full cache is emptied."""


class _Prefix(NamedTuple):
    tools: Any  # referenced here, so that no other object gets its id
    text: str | None
    """None: this kind of conversation is left to verl."""


class _Template:
    """One tokenizer with one chat template and its options."""

    def __init__(self, tokenizer: Any, options: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        self.specials = tuple(tokenizer.all_special_tokens)
        self.prefixes: dict[tuple[str, int], _Prefix] = {}
        self.known: dict[Any, list[int]] = {}
        """Tokens by a conversation's kind and messages."""
        self.backend = getattr(tokenizer, "backend_tokenizer", None)
        self.variables = {**tokenizer.special_tokens_map, **options}
        taken = inspect.signature(tokenizer.apply_chat_template).parameters
        self.plain = isinstance(tokenizer.chat_template, str) and not self.variables.keys() & taken

    def text(self, messages: Any, tools: Any, *, add_generation_prompt: bool) -> str | None:
        """The conversation as text; None if only verl can render it."""
        if not self.plain:
            return None
        try:
            (text,), _ = render_jinja_template(
                [messages],
                tools=tools,
                chat_template=self.tokenizer.chat_template,
                add_generation_prompt=add_generation_prompt,
                **self.variables,
            )
        except Exception:  # noqa: BLE001 - a template may raise anything
            return None
        return str(text)

    def encode(self, text: str) -> list[int]:
        """The text's tokens, without added special tokens."""
        backend, tokenizer = self.backend, self.tokenizer
        if (
            backend is not None
            and backend.truncation is None
            and backend.padding is None
            and backend.encode_special_tokens == tokenizer.split_special_tokens
        ):
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        else:
            ids = tokenizer.encode(text, add_special_tokens=False)
        return ids

    def once(self, key: Any, make: Callable[[], list[int] | None]) -> list[int] | None:
        """The cached tokens of a key, else those of `make`, which are cached unless they are None."""
        ids = self.known.get(key)
        if ids is None:
            if (ids := make()) is None:
                return None
            if len(self.known) == MOST:
                self.known.clear()
            self.known[key] = ids
        return list(ids)

    def remember(self, place: tuple[str, int], tools: Any, text: str | None) -> None:
        """Cache the first text of a kind of conversations; None: verl renders them."""
        if len(self.prefixes) == MOST:
            self.prefixes.clear()
            self.known.clear()  # its keys hold ids of tools, which other objects may now get
        self.prefixes[place] = _Prefix(tools, text)


class _Quick:
    """Replaces two methods of the builder by cached ones, which call verl's if the cache cannot be used."""

    def __init__(self, builder: Any, template: _Template) -> None:
        self.template = template
        self.verls_initial, self.verls_delta = builder.build_initial_tokens, builder.render_delta_token_id

    def initial(self, messages: list[dict[str, Any]], *, tools: Any = None, **media: Any) -> list[int]:
        """The tokens of a whole conversation, with the generation prompt."""

        def quick() -> list[int] | None:
            text = self.template.text(messages, tools, add_generation_prompt=True)
            return None if text is None else self.template.encode(text)

        known = self.template.prefixes.get(place := ("", id(tools)))
        if known is not None and known.text is not None:
            found = self.template.once((place, repr(messages)), quick)
            if found is not None:
                return found
        ids: list[int] = self.verls_initial(messages, tools=tools, **media)
        if known is None:
            self.template.remember(place, tools, "" if quick() == ids else None)
        return ids

    def delta(
        self,
        prefix_messages: list[dict[str, Any]],
        appended_messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = False,
        tools: Any = None,
    ) -> list[int]:
        """The tokens that messages add to a conversation."""

        def after(prefix: str | None) -> list[int] | None:
            text = self.template.text(
                prefix_messages + appended_messages, tools, add_generation_prompt=add_generation_prompt
            )
            new = text[len(prefix) :] if prefix and text and text.startswith(prefix) else ""
            return self.template.encode(new) if new.startswith(self.template.specials) else None

        made_up = bool(prefix_messages) and prefix_messages[0] is _SYNTHETIC_SYSTEM_MESSAGE
        place = (repr(prefix_messages), id(tools))
        known = self.template.prefixes.get(place) if made_up else None
        if known is not None and known.text is not None:
            key = (place, add_generation_prompt, repr(appended_messages))
            found = self.template.once(key, lambda: after(known.text))
            if found is not None:
                return found
        ids: list[int] = self.verls_delta(
            prefix_messages, appended_messages, add_generation_prompt=add_generation_prompt, tools=tools
        )
        if made_up and known is None:
            prefix = self.template.text(prefix_messages, tools, add_generation_prompt=False)
            self.template.remember(place, tools, prefix if after(prefix) == ids else None)
        return ids


_templates: dict[tuple[int, type, str, str], _Template] = {}


def remembering(builder: Any) -> Any:
    """Put the cache before the builder's methods, if it can be used, and return the builder."""
    if type(builder)._render_tokens is not ContinuousTokenBuilder._render_tokens:
        return builder  # it renders images as well
    tokenizer, options = builder.tokenizer, builder.chat_template_kwargs
    key = (id(tokenizer), type(builder), str(tokenizer.chat_template), repr(options))
    template = _templates.get(key) or _templates.setdefault(key, _Template(tokenizer, options))
    quick = _Quick(builder, template)
    builder.build_initial_tokens, builder.render_delta_token_id = quick.initial, quick.delta
    return builder
