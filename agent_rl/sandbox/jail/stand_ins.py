"""The tests' end of a `Link`: stand-ins for the program's classes and objects.

This end compares the program's results. An object of the program can equal plain data only if its class derives from a
plain type, and then its content is compared. An object's operators get plain data only if the tests created the object,
because a program that sees the expected value could simply return True; a test that needs such an operator cannot judge
the program. The program compares its own objects with each other.
"""

from __future__ import annotations

import builtins
import os
import select
import sys
import time
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .link import DATA, Link

MAX_MESSAGE_BYTES = 32 << 20
_MOST_ITEMS = 100_000
_NUMBER, _OWN, _MADE = "\0number", "\0own", "\0made"
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_BINARY = "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split()  # noqa: SIM905
_OPERATORS = {f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")}
_OTHERS = """
len iter next reversed contains getitem setitem delitem enter exit bool int float complex index neg pos abs invert round
trunc floor ceil call await format aiter anext aenter aexit
""".split()  # noqa: SIM905
_SPECIALS = _OPERATORS | {f"__{name}__" for name in _OTHERS}
_VERDICTS = ("startswith", "endswith", "issubset", "issuperset", "isdisjoint")
LINK: Any = None
"""The `TestSide` of this process."""
_TYPES = {kind.__name__: kind for kind in (types.FunctionType, types.MethodType, types.GeneratorType)}


class Broken(BaseException):
    """The program has ended, takes too long, or sends unreadable answers, so all further tests fail."""


class CannotCross(BaseException):
    """A test needs an object that cannot be sent to the program, so the test cannot judge the program."""


def _function(name: str) -> dict[str, str]:
    return {"g": f"builtins:{name}"}


def _made(value: Any) -> Any:
    if isinstance(type(value), _StandInType):
        vars(value)[_MADE] = True
    return value


def is_stand_in(value: Any) -> bool:
    """Whether `value` represents a class or an object of the program."""
    return isinstance(type(value), _StandInType) or type(value) is _StandInType


def _defines(value: Any, special: str) -> bool:
    return any(special in vars(kind).get(_OWN, ()) for kind in type(value).__mro__)


def _withheld(value: Any, special: str) -> Any:
    """Return the result of a special method whose other operand is plain data, which the program must not see.

    An operator that accepts a foreign object may accept any object, so it counts as undefined. An object that the tests
    did not create never equals plain data, so a wrong result cannot pass by defining `__eq__`.
    """
    means_it = vars(value)[_MADE] or not (special in ("__eq__", "__ne__") or _answers_stranger(value, special))
    if means_it and _defines(value, special):
        raise LINK.refuse(f"{special} of an object would see the expected value")
    return NotImplemented


def _answers_stranger(value: Any, special: str) -> bool:
    try:
        answer = LINK.call({"z": special}, value, LINK.stranger())
    except Exception:  # noqa: BLE001 - the program may raise any exception
        return False
    return answer is not NotImplemented and answer is not False


def _comparison(special: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if not is_stand_in(other):
            is_data = issubclass(vars(type(self)).get("\0base", object), DATA)
            return getattr(LINK.content(self), special)(other) if is_data else _withheld(self, special)
        if special == "__ne__" and not _defines(self, special):
            return not self == other  # noqa: SIM201
        if not _defines(self, special):
            return NotImplemented
        same = LINK.call({"z": special}, self, other)
        if special == "__eq__" and same is True and LINK.call({"z": special}, self, LINK.stranger()) is True:
            return False  # the program's object claims to equal every object
        return same

    return compare


def _special(name: str) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if name == "__call__":
            return LINK.call({"h": vars(self)[_NUMBER]}, *args, **kwargs)
        if name == "__await__":
            return _awaited(self)
        made = vars(self)[_MADE]
        if name in _OPERATORS and not _defines(self, name):
            return getattr(LINK.content(self), name)(*args)
        if name == "__contains__" and not made:
            try:
                return any(item == args[0] for item in self)
            except TypeError:  # not iterable
                _withheld(self, name)
                raise
        if name in _OPERATORS and not made and not is_stand_in(args[0]):
            return _withheld(self, name)
        value = LINK.call({"z": name}, self, *args)
        return _made(value) if made and name in _OPERATORS else value

    return method


def _awaited(value: Any) -> Any:
    return LINK.call({"g": "asyncio:run"}, value)
    yield


def _sent(target: Any) -> Any:
    return lambda self, *args: LINK.call(target, self, *args)


def _copied(name: str) -> Callable[..., Any]:
    return lambda self, *_: _made(LINK.call({"g": f"copy:{name}"}, self))


class _StandInType(type):
    """Metaclass of the stand-ins for the program's classes."""

    def __new__(cls, name: str, _: Any, content: dict[str, Any]) -> Any:
        if LINK is not None:
            raise LINK.refuse(f"the tests' {name} class derives from one of the program's classes")
        return type.__new__(cls, name, (), content)

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        return _made(LINK.call({"h": vars(cls)[_NUMBER]}, *args, **kwargs))

    def __bool__(cls) -> bool:
        return True

    def __iter__(cls) -> Iterator[Any]:
        return iter(LINK.call(_function("list"), cls))

    __getattr__, __setattr__, __len__ = (_sent(_function(name)) for name in ("getattr", "setattr", "len"))
    __getitem__ = _sent({"z": "__getitem__"})


class _StandIn(metaclass=_StandInType):
    """A stand-in for an object of the program."""

    def __getattr__(self, name: str) -> Any:
        if name in _VERDICTS and not vars(self)[_MADE]:  # the program's method could simply return True
            raise AttributeError(name)
        return LINK.call(_function("getattr"), self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] == "__":  # exceptions have such attributes, for example `__traceback__`
            object.__setattr__(self, name, value)
        else:
            LINK.call(_function("setattr"), self, name, value)

    __delattr__, __repr__, __str__, __hash__ = (_sent(_function(name)) for name in ("delattr", "repr", "str", "hash"))
    __copy__, __deepcopy__ = map(_copied, ("copy", "deepcopy"))
    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_comparison, _COMPARISONS)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        kind = type(self)
        is_builtin = kind.__module__ == "builtins"
        return _TYPES.get(kind.__name__, kind) if is_builtin else vars(kind).get("\0shown", kind)


class TestSide(Link):
    """The end of the link in the tests' process.

    Args:
        descriptor: the socket.
        limit_s: limit on one call, in CPU seconds. The zygote kills a program that waits without using CPU time.

    Attributes:
        problem: why the current test cannot judge the program, or why all further tests fail; None means no problem.
        local: the row's classes, whose objects are recreated in the program.
    """

    def __init__(self, descriptor: int, limit_s: float) -> None:
        super().__init__(descriptor, 0)
        self.problem: BaseException | None = None
        self.local: set[type] = set()
        self._limit_s, self._depth = limit_s, 0
        self._deadline, self._used_before = 0.0, 0.0
        self._pid = -1
        self._stand_ins: dict[int, Any] = {}
        self._functions: list[Any] = []
        self._pending: dict[int, tuple[int, Any]] = {}
        self._stranger: Any = None
        self._inputs = sys.stdin, builtins.input
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        globals()["LINK"] = self

    def find_process(self) -> None:
        """Get the program's process id; a fake id can only prolong a call up to the time limit for all tests."""
        pid = self.call({"g": "os:getpid"})
        self._pid = pid if type(pid) is int else -1

    def refuse(self, why: str) -> CannotCross:
        """Record that the current test cannot judge the program; return the exception to raise."""
        self.problem = self.problem or CannotCross(why)
        return CannotCross(why)

    def _broken(self, why: str) -> Broken:
        self.problem = Broken(why)
        return self.problem

    def name(self, name: str) -> Any:
        """Return the value that a name has in the program."""
        return self.call({"own": "global_value"}, name)

    def content(self, value: Any) -> Any:
        """Return the plain data of an object."""
        data = self.call({"own": "content"}, value)
        return NotImplemented if is_stand_in(data) else data

    def stranger(self) -> Any:
        """Return an object of the program that equals no other object."""
        self._stranger = self._stranger or self.call(_function("object"))
        return self._stranger

    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call as in `Link.call`, within the time limit for one call."""
        if isinstance(self.problem, Broken):
            raise self.problem
        if (sys.stdin, builtins.input) != self._inputs:
            raise self.refuse("the test replaces standard input")
        if not self._depth:
            self._used_before = self._used_s()
            self._deadline = time.monotonic() + self._limit_s
        self._depth += 1
        try:
            return super().call(target, *args, **kwargs)
        finally:
            self._depth -= 1

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, and the containers no longer used at this end; raise Broken if the program has ended."""
        drop = [number for number, entry in self.shared.items() if sys.getrefcount(entry[0]) == 2]
        for number in drop:
            self.drop(number)
        try:
            super().send({**message, "drop": drop})
        except OSError:
            raise self._broken("the program has ended") from None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Encode the arguments of a call, and the state of the objects of the row's classes."""
        self._pending = {}
        try:
            message = super().arguments(args, kwargs)
        except RecursionError:
            raise self.refuse("a value is nested too deeply") from None
        local: list[Any] = []
        while len(local) < len(self._pending):
            value = list(self._pending.values())[len(local)][1]
            local.append([type(value).__name__, [[name, self.encode(item)] for name, item in vars(value).items()]])
        return {**message, "local": local}

    def _used_s(self) -> float:
        """Return the program's CPU seconds, or 0 while its process is unknown."""
        try:
            return time.clock_gettime(~self._pid << 3 | 2) if self._pid > 0 else 0.0  # as in clock_getcpuclockid
        except (OSError, OverflowError):
            return self._used_before + self._limit_s

    def read(self, size: int) -> bytes:
        """Read `size` bytes; raise Broken if the program ends, takes too long or writes too much."""
        data = bytearray()
        while len(data) < size:
            while not self._poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
                left_s = self._limit_s - (self._used_s() - self._used_before)
                if left_s <= 0:
                    raise self._broken("a call takes too long")
                self._deadline = time.monotonic() + left_s
            part = os.read(self.descriptor, min(size - len(data), 1 << 20)) if size <= MAX_MESSAGE_BYTES else b""
            if not part:
                raise self._broken("the program has ended")
            data += part
        return bytes(data)

    def receive(self) -> Any:
        """Read the next message; raise Broken if it is invalid."""
        try:
            message = super().receive()
            return {"set": [], **message}
        except Exception:  # noqa: BLE001 - a forged message may raise any error
            raise self._broken("the program's answer cannot be read") from None

    def outcome(self, reply: Any) -> tuple[bool, Any]:
        """Decode a reply as in `Link.outcome`; raise Broken if the reply is invalid."""
        try:
            sys.stdout.write(reply.get("out", ""))
            failed, value = super().outcome(reply)
            return failed and isinstance(value, BaseException), value
        except Exception:  # noqa: BLE001 - a forged reply may raise any error
            raise self._broken("the program's answer cannot be read") from None

    def encode_object(self, value: Any) -> Any:
        """Encode stand-ins, functions, classes of the standard library, iterators, and objects of the row's classes."""
        kind = type(value)
        if is_stand_in(value):
            return {"h": vars(value)[_NUMBER]}
        if kind in self.local:
            return {"p": self._pending.setdefault(id(value), (len(self._pending), value))[0]}
        if isinstance(value, BaseException) and vars(builtins).get(kind.__name__) is kind:
            return {"x": [kind.__name__, [self.encode(item) for item in value.args]]}
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if module and name and _is_standard(module) and "<" not in name:
            return {"g": f"{module}:{name}"}
        if callable(value) and not isinstance(value, type) and _is_standard(kind.__module__):
            self._functions.append(value)
            return {"e": len(self._functions) - 1}
        if hasattr(kind, "__next__") or kind.__name__ in ("dict_keys", "dict_values", "dict_items"):
            items = list(islice(value, _MOST_ITEMS + 1))
            if len(items) <= _MOST_ITEMS:
                return {"y": [self.encode(item) for item in items]}
        raise self.refuse(f"a {kind.__name__} cannot be passed to the program")

    def decode_object(self, tag: str, parts: Any) -> Any:
        """Decode stand-ins, and functions that the tests sent."""
        if tag == "e":
            return self._functions[parts]
        if tag == "g":
            kind = vars(builtins)[parts]
            return kind if isinstance(kind, type) else None
        if tag == "k":
            return self._stand_ins[parts[0]] if len(parts) == 1 else self._new_class(*parts)
        if tag not in ("h", "x"):
            raise ValueError(tag)
        kind = self.decode(parts[1])
        if (value := self._stand_ins.get(parts[0])) is not None:
            vars(value)[_MADE] = False
            return value
        value = kind.__new__(kind) if tag == "x" else object.__new__(kind if is_stand_in(kind) else _StandIn)
        if tag == "x":
            object.__setattr__(value, "args", (*self.decode(parts[2]),))
        if is_stand_in(value):
            vars(value).update({_NUMBER: parts[0], _MADE: False})
            self._stand_ins[parts[0]] = value
        return value

    def _new_class(self, number: int, name: str, module: str, bases: list[Any], own: list[str]) -> Any:
        real = (
            getattr(sys.modules.get(module), name, None) if _is_standard(module) and module != "unittest.case" else None
        )
        if isinstance(real, type) and issubclass(real, BaseException):
            self._stand_ins[number] = real
            return real
        parents = [self.decode(base) for base in bases]
        data = [vars(parent).get("\0base", parent) for parent in parents if parent in DATA or "\0base" in vars(parent)]
        parents = [parent for parent in parents if is_stand_in(parent) or issubclass(parent, BaseException)]
        if not any(isinstance(parent, _StandInType) for parent in parents):
            parents.insert(0, _StandIn)
        content: dict[str, Any] = {_NUMBER: number, _OWN: own, "__module__": module}
        content |= {"\0base": data[0], "\0shown": data[0]} if data else {}
        content |= {special: _special(special) for special in own if special in _SPECIALS}
        if data:
            content |= {special: _special(special) for special in vars(data[0]) if special in _SPECIALS}
        self._stand_ins[number] = kind = type.__new__(_StandInType, name, (*parents,), content)
        return kind


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names
