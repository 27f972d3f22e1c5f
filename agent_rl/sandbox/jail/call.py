"""Prepares a program's namespace, calls one of the program's functions, and returns the value as JSON.

The trusted side cannot rely on this code, because it runs in the program's process; the trusted side itself calls only
`plain`, on expected values.
"""

from __future__ import annotations

import json
import marshal
from typing import Any

_NAME = "solution"
_LEAVES = (type(None), bool, int, float, str)
PRELUDE = """
from typing import *
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, partial, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, nlargest, nsmallest
from itertools import accumulate, chain, combinations, count, cycle, groupby, islice, permutations, product, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, log, log2, log10, pi, sqrt
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
"""
"""Names that graders of public data sets provide, so that solutions need not import them."""
_PRELUDE = compile(PRELUDE, "<prelude>", "exec", dont_inherit=True)
_dumps = json.JSONEncoder().encode


class NotComparable(ValueError):
    """A value that JSON cannot express."""


def begin(namespace: dict[str, Any], modules: dict[str, Any]) -> None:
    """Add the usual names to the program's namespace, and make the program a module that can be imported."""
    exec(_PRELUDE, namespace)  # noqa: S102 - the code is a constant in this module
    modules[_NAME] = modules["__main__"]
    namespace["__name__"] = _NAME


def marked_value(call: bytes, namespace: dict[str, Any], _: dict[str, Any]) -> bytes:
    """Call a function, and return the mark followed by the function's value as JSON.

    Args:
        call: `(function, args, kwargs, mark)`, marshalled; a method of the `Solution` class has precedence over a
            function.
        namespace: the program's namespace.

    Raises:
        NameError: the function does not exist.
        NotComparable: the value is not plain.
    """
    name, args, kwargs, mark = marshal.loads(call)  # these bytes were written by the trusted side
    if hasattr(namespace.get("Solution"), name):
        function = getattr(namespace["Solution"](), name)
    elif name in namespace:
        function = namespace[name]
    else:
        raise NameError(f"the program defines no function {name!r}")
    return f"{mark}{_dumps(plain(function(*args, **kwargs)))}".encode("ascii")


def plain(value: Any) -> Any:
    """Return `value` as it would look after a JSON round trip: tuples become lists, keys become strings.

    Raises:
        NotComparable: the value contains an unsupported type, such as a subclass of a supported type.
    """
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind in (list, tuple):
        return [plain(item) for item in value]
    if kind is dict:
        if not all(type(key) in (str, int) for key in value):
            raise NotComparable("a dict with keys that are neither text nor whole numbers cannot be compared")
        return {str(key): plain(item) for key, item in value.items()}
    raise NotComparable(
        f"a {kind.__name__} cannot be compared; only None, bool, int, float, str, list, tuple and dict can"
    )
