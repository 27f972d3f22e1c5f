"""Splits the text of a conversation in verl's dumps (`trainer.rollout_data_dir`, `trainer.log_val_generations`)."""

from __future__ import annotations

import re

_ROLE = re.compile(r"^(system|user|assistant|tool)[ \t]*\n", re.MULTILINE)


def segments(text: str, first: str = "user") -> list[tuple[str, str]]:
    """Return the role and text of each message; `first` is the role of the text before the first role line.

    verl decodes a conversation without its special tokens, so a message starts with a line that contains only its role.
    """
    parts = _ROLE.split(text)
    messages = [(first, parts[0])] if parts[0] else []
    messages += list(zip(parts[1::2], parts[2::2], strict=True))
    return [(role, part.removesuffix("\n").lstrip("\n")) for role, part in messages]
