"""The child's side of grading a function: call it and write its value as JSON.

It runs in the program's own process, so nothing here can be relied upon by the other side.
"""

from __future__ import annotations

import json
import marshal
from typing import Any

__all__ = ["MAX_VALUE_BYTES", "begin", "value_of"]

MAX_VALUE_BYTES = 4 << 20
"""What a value may have where nothing larger is expected."""
_MAX_DEPTH = 100
_NAME = "solution"
_LEAVES = (type(None), bool, int, float, str)
# What graders of such data sets give to solutions that were written without their imports.
_PRELUDE = compile(
    """
from typing import *
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, partial, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, nlargest, nsmallest
from itertools import accumulate, chain, combinations, count, cycle, groupby, islice, permutations, product, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, log, log2, log10, pi, sqrt
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
""",
    "<prelude>",
    "exec",
    dont_inherit=True,
)
_dumps = json.JSONEncoder().encode


def begin(namespace: dict[str, Any], modules: dict[str, Any]) -> None:
    """Before the program: the names it may count on, and a name that is not `__main__`, as when it is imported."""
    exec(_PRELUDE, namespace)  # noqa: S102 - our own constant
    modules[_NAME] = modules["__main__"]
    namespace["__name__"] = _NAME


def value_of(namespace: dict[str, Any], call: bytes) -> bytes:
    """What a function returns, as JSON.

    Args:
        namespace: the program's.
        call: `(function, args, kwargs, most bytes of the value)`, marshalled; a method of the class `Solution` goes
            before a function.

    Raises:
        NameError: there is no such function.
        TypeError: the value is not made of None, bool, int, float, str, list, tuple and dict alone.
        ValueError: the value is too large or nested too deep.
    """
    name, args, kwargs, max_bytes = marshal.loads(call)  # written by the trusted side
    if hasattr(namespace.get("Solution"), name):
        function = getattr(namespace["Solution"](), name)
    elif name in namespace:
        function = namespace[name]
    else:
        raise NameError(f"the program defines no function {name!r}")
    value = function(*args, **kwargs)
    _check(value, name)
    text = _dumps(value).encode("ascii")
    if len(text) > max_bytes:
        raise ValueError(f"{name} returned more than {max_bytes >> 20} MiB")
    return text


def _check(value: Any, name: str, depth: int = _MAX_DEPTH) -> None:
    kind = type(value)
    if kind in _LEAVES:
        return
    if kind is dict:
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"{name} returned a dict with a key of type {type(key).__name__}, not str or int")
        value = value.values()
    elif kind not in (list, tuple):
        kinds = "None, bool, int, float, str, list, tuple and dict"
        raise TypeError(f"{name} returned a {kind.__name__}; only {kinds} can be compared")
    if not depth:
        raise ValueError(f"{name} returned a value nested deeper than {_MAX_DEPTH}")
    for item in value:
        _check(item, name, depth - 1)
