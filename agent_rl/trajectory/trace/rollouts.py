"""The text of a conversation as verl writes it (`trainer.rollout_data_dir`, `trainer.log_val_generations`)."""

from __future__ import annotations

import re

__all__ = ["segments"]

_ROLE = re.compile(r"^(system|user|assistant|tool)[ \t]*\n", re.MULTILINE)


def segments(text: str, first: str = "user") -> list[tuple[str, str]]:
    """Role and text of each part; `first` is the role of the text before the first role line.

    verl decodes a conversation without its special tokens: what is left of a message's beginning is a line with its
    role.
    """
    parts = _ROLE.split(text)
    found = [(first, parts[0])] if parts[0] else []
    found += list(zip(parts[1::2], parts[2::2], strict=True))
    return [(role, part.removesuffix("\n").lstrip("\n")) for role, part in found]
