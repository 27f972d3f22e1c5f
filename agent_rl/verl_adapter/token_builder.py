"""Builds the tokens around turns with any model's chat template, as a replacement for verl's builder.

verl's builder for some model families renders dummy system and user messages before appended messages. verl's builder
fails with templates that reject system messages or two user messages in a row, drops the text that an unknown family's
template writes after the end-of-turn token, and needs the names of calls, which the messages do not contain.
"""

from __future__ import annotations

from typing import Any

from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder, MergeResult

from agent_rl.agents.policies.chat_template import ChatTemplate, template_of


class TemplateBuilder(ContinuousTokenBuilder):
    """Builds the tokens of conversations without images.

    Args:
        template: the chat template; all conversations of a worker share it and its cache.
    """

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template.tokenizer, chat_template_kwargs=template.options)
        self.template = template

    @property
    def turn_ends(self) -> frozenset[int]:
        """The tokens that end a turn and are not part of its text."""
        return self.template.start_ids | ({self.template.end_id} if self.template.end_id is not None else set())

    def build_initial_tokens(self, messages: list[dict[str, Any]], *, tools: Any = None, **media: Any) -> list[int]:
        """Return the tokens of a whole conversation and of the start of the next turn."""
        return self.template.prompt_ids(messages, tools)

    def merge_context_tokens(
        self,
        previous_messages: list[dict[str, Any]],
        updated_messages: list[dict[str, Any]],
        runtime_token_ids: list[int],
        *,
        tools: Any = None,
    ) -> MergeResult:
        """Append the new messages to the conversation's tokens, which end with a turn."""
        self._assert_append_only(previous_messages, updated_messages)
        template, ids, removed = self.template, list(runtime_token_ids), 0
        closing, rest = template.following(updated_messages[len(previous_messages) :], tools)
        last = ids[-1] if ids else None
        ends = [at for at, token in enumerate(closing) if token in template.end_ids]
        if last in template.special_ids and last in closing:
            closing = closing[len(closing) - closing[::-1].index(last) :]
        elif last in template.end_ids:
            closing = []
        elif ends:
            closing = closing[ends[0] :]
        elif rest and last == rest[0] and last in template.start_ids:
            closing, rest = [], rest[1:]
        elif last in template.start_ids:
            closing, removed = [], 1
            ids.pop()
        return MergeResult(ids + closing + rest, len(rest), "context", list(closing), removed)


def template_builder(verls: Any) -> Any:
    """Return agent_rl's builder, or verl's builder if it renders images or has its own encoder."""
    kind, base = type(verls), ContinuousTokenBuilder
    if (kind._render_tokens, kind.build_initial_tokens) != (base._render_tokens, base.build_initial_tokens):
        return verls
    return TemplateBuilder(template_of(verls.tokenizer, verls.chat_template_kwargs))
