"""Sends calls between a program's process and its tests' process over a socket, as tagged JSON, never as a pickle.

`Link` is the base class of both ends of the connection. Plain data keeps its type when it is sent. A container that a
call passes or returns stays one object at each end, and each message updates the container's content. `_ProgramSide`
answers calls and sends every other object of the program as a number; `stand_ins.py` is the other end.
"""

from __future__ import annotations

import builtins
import importlib
import io
import json
import os
import sys
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

DATA = (str, bytes, int, float, complex, tuple, frozenset, list, OrderedDict, dict, set)
"""Types of plain data; an object of a derived class contains such data."""
_SHARED = (list, dict, set, OrderedDict, Counter, defaultdict, deque)
_SMALL = 1 << 62
_DATES = (f"datetime.{name}" for name in ("date", "time", "datetime", "timedelta", "timezone"))
_STANDARD = ("decimal.Decimal", "fractions.Fraction", "pathlib.PosixPath", "pathlib.PurePosixPath", *_DATES)


def _pairs(value: Any) -> Any:
    return map(list, value.items())


# Tag, type, function that splits a value into parts, and function that rebuilds the value.
_KINDS: list[tuple[str, type, Callable[[Any], Any], Callable[..., Any]]] = [
    ("t", tuple, list, lambda *items: items),
    ("s", set, list, lambda *items: set(items)),
    ("f", frozenset, list, lambda *items: frozenset(items)),
    ("d", defaultdict, _pairs, lambda *pairs: dict(pairs)),
    ("d", dict, _pairs, lambda *pairs: dict(pairs)),
    ("O", OrderedDict, _pairs, lambda *pairs: OrderedDict(pairs)),
    ("C", Counter, _pairs, lambda *pairs: Counter(dict(pairs))),
    ("q", deque, lambda value: (list(value), value.maxlen), deque),
    ("b", bytes, lambda value: [value.hex()], bytes.fromhex),
    ("B", bytearray, lambda value: [value.hex()], bytearray.fromhex),
    ("c", complex, lambda value: (value.real, value.imag), complex),
    ("r", range, lambda value: (value.start, value.stop, value.step), range),
    ("l", slice, lambda value: (value.start, value.stop, value.step), slice),
    ("N", type(NotImplemented), lambda value: (), lambda: NotImplemented),
]
_TAGS = {kind: (tag, parts) for tag, kind, parts, _ in _KINDS}
_MAKE: dict[str, Callable[..., Any]] = {tag: make for tag, _, _, make in _KINDS} | {"i": lambda text: int(text, 16)}


class Link(ABC):
    """One end of the socket between a program and its tests.

    Args:
        descriptor: the socket.
        first: number of this end's first shared container; one end uses even numbers, and the other end odd numbers.
    """

    def __init__(self, descriptor: int, first: int) -> None:
        self.descriptor, self._next = descriptor, first
        self.shared: dict[int, list[Any]] = {}  # number -> [container, its content when it was last sent]
        self.numbers: dict[int, int] = {}

    def encode(self, value: Any, *, share: bool = False) -> Any:
        """Encode `value` as JSON data; with `share`, later changes to `value` are sent too."""
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if -_SMALL < value < _SMALL else {"i": [hex(value)]}
        if share and kind in _SHARED:
            return self._share(value)
        if kind is list:
            return [self.encode(item) for item in value]
        if kind in _TAGS:
            tag, parts = _TAGS[kind]
            return {tag: [self.encode(part) for part in parts(value)]}
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _STANDARD:
            return {"o": [name, *map(self.encode, value.__reduce__()[1])]}
        if kind.__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc":
            if name == "numpy.ndarray":
                return {"a": [value.dtype.str, list(value.shape), value.tobytes().hex()]}
            return self.encode(value.item())
        return self.encode_object(value)

    def decode(self, data: Any) -> Any:
        """Decode a value that the other end encoded."""
        if type(data) is list:
            return [self.decode(item) for item in data]
        if type(data) is not dict:
            return data
        ((tag, parts),) = data.items()
        if tag in _MAKE:
            return _MAKE[tag](*map(self.decode, parts))
        if tag == "o" and parts[0] in _STANDARD:
            module, _, name = parts[0].partition(".")
            return getattr(importlib.import_module(module), name)(*map(self.decode, parts[1:]))
        if tag == "a":
            flat = importlib.import_module("numpy").frombuffer(bytes.fromhex(parts[2]), parts[0])
            return flat.reshape(parts[1]).copy()
        if tag != "m":
            return self.decode_object(tag, parts)
        return self._adopt(parts[0], self.decode(parts[1]), parts[1]) if len(parts) > 1 else self.shared[parts[0]][0]

    @abstractmethod
    def encode_object(self, value: Any) -> Any:
        """Encode a value that is not plain data."""

    @abstractmethod
    def decode_object(self, tag: str, parts: Any) -> Any:
        """Decode a value from the other end's `encode_object`."""

    def _share(self, value: Any) -> Any:
        if (number := self.numbers.get(id(value))) is not None:
            return {"m": [number]}
        number, self._next = self._next, self._next + 2
        content = self.encode(value)
        self._adopt(number, value, content)
        return {"m": [number, content]}

    def _adopt(self, number: int, value: Any, content: Any) -> Any:
        self.shared[number] = [value, content]
        self.numbers[id(value)] = number
        return value

    def drop(self, number: int) -> None:
        """Stop sharing a container."""
        del self.numbers[id(self.shared.pop(number)[0])]

    def changes(self) -> list[Any]:
        """Return the numbers and contents of the shared containers that this end has changed since the last message."""
        now = [(number, entry, self.encode(entry[0])) for number, entry in self.shared.items()]
        changed = [(number, entry, content) for number, entry, content in now if content != entry[1]]
        for _, entry, content in changed:
            entry[1] = content
        return [[number, content] for number, _, content in changed]

    def update(self, message: Any) -> None:
        """Apply the other end's changes to shared containers."""
        for number, content in message["set"]:
            _refill(self.shared[number][0], self.decode(content))
            self.shared[number][1] = content

    def send(self, message: dict[str, Any]) -> None:
        """Write one message; raise OSError if the other end is closed."""
        data = json.dumps(message).encode("ascii")
        rest = memoryview(len(data).to_bytes(4, "big") + data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def receive(self) -> Any:
        """Read the next message; exit if the other process has ended."""
        return json.loads(self.read(int.from_bytes(self.read(4), "big")))

    def read(self, size: int) -> bytes:
        """Read `size` bytes."""
        data = bytearray()
        while len(data) < size:
            if not (part := os.read(self.descriptor, min(size - len(data), 1 << 20))):
                os._exit(0)
            data += part
        return bytes(data)

    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `target` at the other end, and answer the other end's calls in the meantime."""
        self.send({"call": target, **self.arguments(args, kwargs), "set": self.changes()})
        while "call" in (reply := self.receive()):
            self.answer(reply)
        failed, value = self.outcome(reply)
        if failed:
            raise value
        return value

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Encode the arguments of a call."""
        named = {name: self.encode(value, share=True) for name, value in kwargs.items()}
        return {"args": [self.encode(value, share=True) for value in args], "kwargs": named}

    def outcome(self, reply: Any) -> tuple[bool, Any]:
        """Return whether a call raised an exception, and the exception or the value."""
        self.update(reply)
        has_raised = "error" in reply
        return has_raised, self.decode(reply["error" if has_raised else "value"])

    def answer(self, message: Any) -> None:
        """Execute one call, and send the value or the exception."""
        reply: dict[str, Any]
        try:
            self.update(message)
            target, args = self.decode(message["call"]), self.decode(message["args"])
            value = target(*args, **{name: self.decode(value) for name, value in message["kwargs"].items()})
            reply = {"value": self.encode(value, share=True)}
        except BaseException as error:  # noqa: BLE001 - the error is sent to the caller at the other end
            reply = {"error": self.encode(error)}
        self.send({**reply, "set": self.changes(), "out": self.printed()})

    def printed(self) -> str:
        """Return the output that was printed since the last reply."""
        return ""


def _refill(old: Any, new: Any) -> None:
    """Replace the content of `old` with the content of `new`, keeping nested containers where possible."""
    if isinstance(old, dict):
        merged = {key: _merge(old.get(key), value) for key, value in new.items()}
    elif isinstance(old, list):
        merged = [_merge(*pair) for pair in zip([*old, *[None] * len(new)], new)]  # type: ignore[assignment]  # noqa: B905
    else:
        merged = new
    old.clear()
    getattr(old, "update" if isinstance(old, dict | set) else "extend")(merged)


def _merge(old: Any, new: Any) -> Any:
    if type(old) is not type(new) or type(new) not in _SHARED:
        return new
    _refill(old, new)
    return old


class _ProgramSide(Link):
    """The end of the link in the program's process, which the other end must not trust."""

    def __init__(self, descriptor: int, namespace: dict[str, Any], before: dict[str, Any]) -> None:
        super().__init__(descriptor, 1)
        self._namespace, self._before = namespace, before
        self._objects: list[Any] = []
        self._places: dict[int, int] = {}
        self._described: set[int] = set()
        self._local: list[Any] = []
        self._callbacks: dict[int, int] = {}
        self._output = sys.stdout = io.StringIO()

    def own_names(self) -> list[str]:
        """Return the names that the program has defined."""
        items = list(self._namespace.items())
        return [n for n, value in items if self._before.get(n, self) is not value and not isinstance(value, ModuleType)]

    def global_value(self, name: str) -> Any:
        """Return the value that a name has in the program."""
        if name not in self._namespace:
            raise AttributeError(f"the program defines no {name!r}")
        return self._namespace[name]

    def content(self, value: Any) -> Any:
        """Return the plain data of an object whose class derives from one of `DATA`."""
        base: Any = next(base for base in DATA if isinstance(value, base))
        if issubclass(base, dict):
            return base(base.items(value))
        return (
            base(base.__iter__(value)) if hasattr(base, "__iter__") and base is not str else base.__add__(value, base())
        )

    def update(self, message: Any) -> None:
        """Apply changes, create objects of the row's classes, and drop containers that the tests no longer use."""
        if local := message.get("local"):
            self._local = [object.__new__(self._namespace[name]) for name, _ in local]
            for value, (_, state) in zip(self._local, local, strict=True):
                vars(value).update({name: self.decode(item) for name, item in state})
        super().update(message)
        for number in message.get("drop", ()):
            self.drop(number)

    def encode_object(self, value: Any) -> Any:
        """Encode an object as its number and class, and a class as its bases and special methods."""
        if id(value) in self._callbacks:
            return {"e": self._callbacks[id(value)]}
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BaseException):
            return {"x": [self._place(value), self._class(type(value)), [self.encode(item) for item in value.args]]}
        return {"h": [self._place(value), self._class(type(value))]}

    def decode_object(self, tag: str, parts: Any) -> Any:
        """Decode a reference from the tests, such as an object, a special method or a name in the standard library."""
        if tag in ("h", "p"):
            return (self._objects if tag == "h" else self._local)[parts]
        if tag == "e":
            callback = self._objects[self._place(partial(self.call, {"e": parts}))]
            self._callbacks[id(callback)] = parts
            return callback
        if tag == "z":
            return lambda value, *args: getattr(type(value), parts)(value, *args)
        if tag == "x":
            return getattr(builtins, parts[0])(*self.decode(parts[1]))
        if tag in ("y", "own"):
            return iter(self.decode(parts)) if tag == "y" else getattr(self, parts)
        module, _, path = parts.partition(":")
        value: Any = importlib.import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def printed(self) -> str:
        """Return the program's output since the last reply."""
        if text := self._output.getvalue():
            self._output.seek(0)
            self._output.truncate()
        return text

    def _place(self, value: Any) -> int:
        place = self._places.setdefault(id(value), len(self._objects))
        if place == len(self._objects):
            self._objects.append(value)
        return place

    def _class(self, kind: type) -> Any:
        is_plain = kind in DATA or issubclass(kind, BaseException) or kind in (object, type, bool)
        if is_plain and vars(builtins).get(kind.__name__) is kind:
            return {"g": kind.__name__}
        place = self._place(kind)
        if place in self._described:
            return {"k": [place]}
        self._described.add(place)
        bases = [self._class(base) for base in kind.__bases__ if base is not object]
        return {"k": [place, kind.__name__, kind.__module__, bases, [name for name in vars(kind) if name[:2] == "__"]]}


def serve(descriptor: int, namespace: dict[str, Any], before: dict[str, Any]) -> NoReturn:
    """Answer the tests' calls until the tests end, then exit.

    Args:
        descriptor: the socket.
        namespace: the program's namespace.
        before: the namespace before the program ran.
    """
    link = _ProgramSide(descriptor, namespace, before)
    while True:
        link.answer(link.receive())
