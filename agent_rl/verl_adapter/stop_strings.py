"""Stop strings without a decoded tail in every step, as a plugin of SGLang (group `sglang.srt.plugins`).

After each token SGLang decodes the last tokens of every request that has stop strings, 4 to 9 us each. A stop string
ends with a token whose own text has its last character or a part of that: the others are looked up, in 1 us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Endings", "check", "install"]

CHECK = "sglang.srt.managers.schedule_batch.Req._check_str_based_finish"


class Endings(dict[int, bool]):
    """Whether a token can be the last one of a stop string, by its id."""

    def __init__(self, tokenizer: Any, stops: tuple[str, ...]) -> None:
        super().__init__()
        self._tokenizer, self._last = tokenizer, {stop[-1:] for stop in stops}
        # tokenizers may drop a space at the beginning of a text, or those around an apostrophe
        self._is_any = any(not last or last.isspace() or last == "'" for last in self._last)

    def __missing__(self, token: int) -> bool:
        text = self._tokenizer.decode([token])
        self[token] = found = self._is_any or not text or "\ufffd" in text or any(last in text for last in self._last)
        return found


def install() -> None:
    """Hook SGLang's method; SGLang calls this in its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(CHECK, check, HookType.AROUND)


def check(original: Callable[..., bool], request: Any) -> bool:
    """Whether the request has written a stop string; arguments and result are SGLang's.

    A request's output only grows, so what was checked is not checked again.
    """
    params = request.sampling_params
    if not params.stop_strs:
        return original(request)
    if (ends := getattr(request, "agent_rl_endings", None)) is None:
        stops = ("",) if params.stop_regex_strs else tuple(params.stop_strs)  # a pattern may end with any token
        ends = request.agent_rl_endings = _endings(request.tokenizer, stops)
        request.agent_rl_checked = 0
    since, request.agent_rl_checked = request.agent_rl_checked, len(request.output_ids)
    return any(ends[token] for token in request.output_ids[since:]) and original(request)


_endings = functools.lru_cache(maxsize=64)(Endings)
