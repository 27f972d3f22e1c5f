"""Tests that are Python, with pytest's semantics; and programs that want to pass them without computing the answer."""

import asyncio

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.sandbox import PythonTests, grade_by_tests
from tests.sandbox.test_cheats import ANSWER, FUNCTIONS

pytestmark = pytest.mark.slow
# ruff: noqa: E501

PROGRAM = """
class Empty(ValueError):
    def __init__(self, code):
        super().__init__(f"empty: {code}")
        self.code = code

class Cart:
    def __init__(self, prices=()):
        self.prices = list(prices)
    def add(self, price):
        if price < 0:
            raise ValueError("negative price")
        self.prices.append(price)
        return self
    def total(self):
        if not self.prices:
            raise Empty(7)
        return sum(self.prices)
    def __len__(self):
        return len(self.prices)
    def __contains__(self, price):
        return price in self.prices
    def __eq__(self, other):
        return isinstance(other, Cart) and self.prices == other.prices
    def __add__(self, other):
        return Cart(self.prices + (other.prices if isinstance(other, Cart) else [other]))
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.prices.clear()
    def __iter__(self):
        return iter(self.prices)

class Money:
    def __init__(self, cents):
        self.cents = cents
    def __add__(self, other):
        return Money(self.cents + getattr(other, "cents", other))
    __radd__ = __add__
    def __lt__(self, other):
        return self.cents < getattr(other, "cents", other)
    def __contains__(self, cents):
        return cents <= self.cents

import collections
Pair = collections.namedtuple("Pair", "left right")

def pair(x): return Pair(x, {x: (x, x)})
def sort_in_place(items): items.sort()
def nested(grid): grid[0][0] = 9; return grid
def apply(function, *values): return [function(value) for value in values]
def numbers(n):
    for number in range(n): yield number
def same(value): return value
def money(x): return Money(x)
def show(x): print("got", x)
def kinds(): return {1}, frozenset({2}), b"3", 4j, None, (5,), float("inf"), 10 ** 30, {"six": [6]}, True
async def later(x): return x + 1
"""

PASSED = {
    "plain values keep their types": """
def test():
    assert kinds() == ({1}, frozenset({2}), b"3", 4j, None, (5,), float("inf"), 10 ** 30, {"six": [6]}, True)
    assert [type(each) for each in kinds()[:3]] == [set, frozenset, bytes]
    assert same((1, 2)) != [1, 2] and isinstance(same((1,)), tuple) and same(True) is True
    assert same(float("nan")) != same(float("nan"))
""",
    "parameters, one upon the other": """
import pytest
@pytest.mark.parametrize("a, b", [(1, 2), pytest.param(3, 4, id="x"), pytest.param(0, 0, marks=pytest.mark.skip)])
@pytest.mark.parametrize("c", [5, 6], ids=["five", "six"])
def test(a, b, c):
    assert apply(lambda x: x + c, a, b) == [a + c, b + c]
""",
    "fixtures": """
import pytest
made = []
@pytest.fixture(scope="module")
def shared():
    made.append("shared")
    yield Cart([1])
    made.append("end")
@pytest.fixture(params=[2, 3])
def price(request): return request.param
@pytest.fixture(autouse=True)
def around(shared):
    yield
    shared.prices.clear()
    shared.prices.append(1)
def test_a(shared, price): assert shared.add(price).total() == 1 + price
def test_b(shared): assert shared.total() == 1 and made == ["shared"]
class TestIn:
    @pytest.fixture
    def own(self): return Cart([len(made)])
    def test(self, own): assert own.total() == 1
""",
    "set-up": """
import unittest
def setup_module(): global ready; ready = 1
class TestA:
    @classmethod
    def setup_class(cls): cls.first = ready
    def setup_method(self, method): self.cart = Cart([self.first])
    def teardown_method(self): del self.cart
    def test(self): assert self.cart.total() == 1
    def test_again(self): self.cart.add(1); assert self.cart.total() == 2
class Unit(unittest.TestCase):
    def setUp(self): self.cart = Cart([1.5])
    def test(self):
        self.assertAlmostEqual(self.cart.total(), 1.5)
        with self.assertRaises(ValueError): self.cart.add(-1)
""",
    "exceptions": """
import pytest
from solution import Cart, Empty
def test():
    with pytest.raises(ValueError, match="negative"): Cart().add(-1)
    with pytest.raises(Empty) as caught: Cart().total()
    assert caught.value.code == 7 and "empty: 7" in str(caught.value) and isinstance(caught.value, ValueError)
    with pytest.raises(AttributeError): Cart().no_such
    with pytest.raises(ZeroDivisionError): apply(lambda x: 1 / x, 0)
    try: Cart().total()
    except Empty as error: assert error.args == ("empty: 7",)
""",
    "objects": """
import copy
def test():
    cart = Cart([1, 2])
    assert len(cart) == 2 and 2 in cart and 3 not in cart and list(cart) == [1, 2] and isinstance(cart, Cart)
    assert cart == Cart([1, 2]) and cart != Cart([3]) and cart != [1, 2] and cart.add(3) is cart
    assert (Cart([3]) + 4).prices == [3, 4] and (Cart([1]) + Cart([2])).prices == [1, 2]
    with cart as inner: assert inner.prices == [1, 2, 3]
    assert cart.prices == [] and copy.deepcopy(cart) == cart
    assert money(1) < money(2) and (money(1) + money(2)).cents == 3 and sorted([money(2), money(1)])[0].cents == 1
    cart.prices = [5]
    prices = cart.prices
    prices.append(6)
    assert cart.total() == 11
    cart.add(7)
    assert prices == [5, 6, 7]
""",
    "a subclass of a plain type": """
def test():
    assert pair(1) == (1, {1: (1, 1)}) and pair(1).right == {1: (1, 1)} and pair(2)[0] == 2
    assert isinstance(pair(1), tuple) and len(pair(1)) == 2 and pair(1)._asdict() == {"left": 1, "right": {1: (1, 1)}}
""",
    "arguments that the program changes": """
def test():
    items = [3, 1, 2]
    sort_in_place(items)
    assert items == [1, 2, 3]
    grid = [[1], [2]]
    row = grid[0]
    assert nested(grid) is grid and grid == [[9], [2]] and row == [9]
""",
    "functions, iterators and generators": """
import operator
seen = []
def test():
    assert apply(seen.append, 1, 2) == [None, None] and seen == [1, 2]
    assert apply(str, 1) == ["1"] and apply(operator.neg, 1) == [-1] and apply(lambda x: x.total(), Cart([4])) == [4]
    assert list(numbers(3)) == [0, 1, 2] and next(numbers(1)) == 0 and sum(same(x for x in [1, 2])) == 3
""",
    "what is printed": """
import contextlib, io
def test(capsys):
    show(1)
    assert capsys.readouterr().out == "got 1\\n"
def test_too():
    with contextlib.redirect_stdout(io.StringIO()) as text: show(2)
    assert text.getvalue() == "got 2\\n"
""",
    "what is nearly equal": """
import pytest
def test():
    assert same(0.1 + 0.2) == pytest.approx(0.3) and same([0.1 + 0.2]) == pytest.approx([0.3])
    assert same(1.01) == pytest.approx(1, abs=0.1) and same(1.01) != pytest.approx(1) and same("a") != pytest.approx(1)
""",
    "coroutines": """
import asyncio, pytest
@pytest.mark.asyncio
async def test(): assert await later(1) == 2
def test_run(): assert asyncio.run(later(2)) == 3
""",
    "asserts of the module, loops, helpers": """
def double(x): return 2 * x
assert same(1) == 1
for x in range(3): assert apply(double, x) == [double(x)]
""",
    "marks that leave a test out": """
import pytest
@pytest.mark.skip(reason="x")
def test_a(): assert False
@pytest.mark.skipif(True, reason="x")
def test_b(): assert False
@pytest.mark.xfail
def test_c(): assert False
def test_d(): pytest.skip("x")
@pytest.mark.slow
def test_e(): assert same(1) == 1
""",
}

UNKNOWN = {
    "a file": "def test(tmp_path): assert same(1) == 1",
    "a file that is opened": "def test():\n    open('x')\n    assert same(1) == 1",
    "a mock": "from unittest.mock import patch\ndef test(): assert same(1) == 1",
    "an object of the tests": "class A: pass\ndef test(): assert same(A()) is None",
    "a class that derives from the program's": "class B(Cart): pass\ndef test(): assert B([1]).total() == 1",
    "another input": "import io, sys\ndef test():\n    sys.stdin = io.StringIO('1')\n    assert same(1) == 1",
    "a function that only pytest defines": "import pytest\ndef test():\n    with pytest.warns(UserWarning): same(1)",
    "a package that is not there": "import no_such_package\ndef test(): assert same(1) == 1",
    "no test": "x = 1",
    "what an object would see": "def test(): assert Cart([1]) == [1]",
    "an operator of an object that was returned": "def test(): assert (money(1) + 1).cents == 2",
    "a reflected operator": "def test(): assert (1 + money(1)).cents == 2",
    "the sum of objects": "def test(): assert sum([money(1), money(2)]).cents == 3",
    "the order of an object and a number": "def test(): assert money(1) < 2",
    "the order of a number and an object": "def test(): assert 2 > money(1)",
    "what an object contains": "def test(): assert 1 in money(2)",
}

F = "def f(x):\n    return "
SOCKET = """
import json, os
def say(data): os.write(3, data if isinstance(data, bytes) else len(json.dumps(data)).to_bytes(4, "big") + json.dumps(data).encode())
"""
AS_A_FUNCTION = (
    *("no function", "leave at once", "leave in the function", "leave by an exception", "search the objects"),
    *("search the frames", "a deep list", "a list in itself", "an equal to everything", "text that equals everything"),
)
CHEATS = {
    "a stub": f"{F}None",
    "an object that is everything": (
        "class M(type):\n    def __getattr__(cls, name): return lambda *a, **k: True\n"
        "class A(metaclass=M):\n    def __getattr__(self, name): return lambda *a, **k: True\n"
        + "".join(
            f"    __{name}__ = lambda self, *a: True\n"
            for name in ["eq", "lt", "le", "gt", "ge", "contains", "bool", "call", "instancecheck", "startswith"]
        )
        + "".join(f"    __{name}__ = lambda self, *a: 0.0\n" for name in ["sub", "rsub", "abs", "float", "round"])
        + "    __hash__ = lambda self: 1\n    __ne__ = lambda self, other: False\n    __len__ = lambda self: 3\n"
        + "    __class__ = str\n"
        + F
        + "A()"
    ),
    "a class that it claims to be of the standard library": (
        "class Decimal:\n    def __eq__(self, other): return True\n    def __reduce__(self): return Decimal, ('1',)\n"
        "Decimal.__module__ = 'decimal'\n" + F + "Decimal()"
    ),
    "an assertion": "def f(x): raise AssertionError",
    "a skip": "import unittest\ndef f(x): raise unittest.SkipTest",
    "an exception of every kind": "class E(ValueError, KeyError, AssertionError): pass\ndef f(x): raise E",
    "an exception that exits": "import os\nclass E(Exception):\n    args = property(lambda s: os._exit(0))\ndef f(x): raise E",
    "an endless loop": "def f(x):\n    while True: pass",
    "an endless answer": f"{SOCKET}\ndef f(x):\n    say((1 << 24).to_bytes(4, 'big'))\n    while True: say(bytes(1 << 16))",
    "a huge answer": f"{F}'x' * (40 << 20)",
    "a forged answer": f"{SOCKET}\nfor _ in range(9): say({{'value': True, 'set': [], 'out': ''}})",
    "a forged answer that is no JSON": f"{SOCKET}\nsay(b'\\0\\0\\0\\2x{{')",
    "a forged object": f"{SOCKET}\nfor _ in range(9): say({{'value': {{'h': [1, {{'g': 'eval'}}]}}, 'set': []}})",
    "a forged exception": f"{SOCKET}\nfor _ in range(9): say({{'error': {{'x': [1, {{'g': 'eval'}}, []]}}, 'set': []}})",
    "a forged function": f"{SOCKET}\nfor _ in range(9): say({{'call': {{'g': 'os:_exit'}}, 'args': [0], 'kwargs': {{}}, 'set': []}})",
    "a forged change": f"{SOCKET}\nfor _ in range(9): say({{'value': 1, 'set': [[0, [1]], [7, {{'m': [0]}}]]}})",
    "a closed socket": "import os\nos.close(3)",
    "the other end of the socket": "import os\nos.write(1, b'[[\"passed\", \"\"]]')\nos.write(2, b'x')\nos._exit(0)",
    "builtins of its own": "import builtins, json\nbuiltins.type = lambda *a: str\njson.dumps = lambda *a: '{}'\n" + F + "x",
    **{name: FUNCTIONS[name] for name in AS_A_FUNCTION},
    "names of the tests": "pytest = check = test = None\nlen = all = isinstance = lambda *a: True\n" + F + "x",
}  # fmt: skip
SECRETS = f"""
import pytest
def test_equal(): assert f(3) == {ANSWER!r}
def test_equal_too(): assert {ANSWER!r} == f(3)
def test_in(): assert f(3) in ({ANSWER!r}, "x")
def test_contains(): assert {ANSWER!r} in f(3)
def test_starts(): assert f(3).startswith({ANSWER!r})
def test_near(): assert abs(f(3) - 40961.25) < 1e-6
def test_approx(): assert f(3) == pytest.approx(40961.25)
def test_order(): assert 40961 < f(3) < 40962
def test_sequence(): assert [f(3), 1] == [{ANSWER!r}, 1]
"""


async def outcome(sandbox, program, tests, **options):
    """Passed and all tests; or why the program is unscored."""
    try:
        report = await grade_by_tests(program, tests, sandbox=sandbox, **{"timeout_s": 3.0, **options})
    except UnscoredError as error:
        return str(error)
    return report.passed, report.total


@pytest.fixture(scope="module")
def outcomes(box):
    """The outcomes of all tests and cheats."""
    jobs = [(name, PROGRAM, text) for name, text in (PASSED | UNKNOWN).items()]
    jobs += [(name, code, SECRETS) for name, code in CHEATS.items()]

    async def main():
        done = await asyncio.gather(*(outcome(box.sandbox, code, PythonTests(text)) for _, code, text in jobs))
        return {name: each for (name, _, _), each in zip(jobs, done, strict=True)}

    return box.do(main())


@pytest.mark.parametrize("name", PASSED)
def test_the_right_program_passes(outcomes, name):
    passed, total = outcomes[name]
    assert passed == total > 0


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_cross_is_unscored(outcomes, name):
    assert "the tests cannot be run" in outcomes[name]


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes_a_test_or_is_unscored(outcomes, name):
    passed, total = outcomes[name]
    assert passed == 0
    assert total > 0


def test_each_assert_of_check_counts_and_one_failure_is_enough(box):
    text = "def check(candidate):\n    x = [2]\n    assert candidate(1) == x\n    assert candidate(2) == 5\n    assert True"
    tests = PythonTests(text, "import math\ndef helper(x): return math.floor(x)", "Solution().f")
    program = "class Solution:\n    def f(self, target): return [helper(target + 1)]"
    assert box.do(outcome(box.sandbox, program, tests)) == (2, 3)
    assert box.do(outcome(box.sandbox, program, tests, stop_at_first_failure=True)) == (0, 1)


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "while True: pass"])
def test_a_program_that_ends_or_hangs_fails_only_the_asserts_that_remain(box, end):
    program = f"def f(x):\n    if x > 2: stop()\n    return x\ndef stop():\n    {end}"
    text = "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {n}\n" for n in range(1, 5))
    assert box.do(outcome(box.sandbox, program, PythonTests(text, entry_point="f"), timeout_s=0.5)) == (2, 4)
    assert box.do(outcome(box.sandbox, program, PythonTests(f"{text}check(f)"), timeout_s=0.5)) == (2, 4)


def test_dates_with_time_zones_and_paths_are_plain_data(box):
    imports = "from datetime import datetime, timedelta, timezone\nfrom pathlib import Path\n"
    program = (
        imports
        + "def same(x): return x\ndef join(x): return Path(x) / 'b'\ndef utc(): return datetime(2024, 1, 1, tzinfo=timezone.utc)\n"
    )
    text = (
        imports
        + "def test_a(): assert [utc()] == [datetime(2024, 1, 1, tzinfo=timezone.utc)] != [datetime(2024, 1, 1)]\n"
    )
    text += "def test_b(): assert join('a') == join(Path('a')) == Path('a/b') != Path('a')\n"
    text += "def test_c(): assert same(zone := timezone(timedelta(hours=-2), 'x')) == zone and same(zone).tzname(None) == 'x'\n"
    assert box.do(outcome(box.sandbox, program, PythonTests(text))) == (3, 3)


def test_helpers_of_the_row_are_not_the_programs(box):
    """The row's own classes are made again in the program, and what it returns is read by the row's own functions."""
    prefix = (
        "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value, next\n"
        "def chain(values): return Node(values[0], chain(values[1:])) if values else None\n"
        "def values(node): return [node.value, *values(node.next)] if node else []\n"
    )
    tests = PythonTests("def check(f):\n    assert values(f(head=chain([1, 2, 3]))) == [3, 2, 1]\n", prefix, "turn")
    turn = "def turn(head):\n    last = None\n    while head: head.next, last, head = last, head, head.next\n    return last"
    assert box.do(outcome(box.sandbox, turn, tests)) == (1, 1)
    cheat = "def turn(head): pass\ndef values(node): return [3, 2, 1]"
    assert box.do(outcome(box.sandbox, cheat, tests)) == (0, 1)


def test_an_object_of_the_tests_own_class_does_not_make_a_test_unscored(box):
    specials = "".join(
        f"    __{name}__ = lambda self, *_: True\n" for name in ["eq", "lt", "gt", "contains", "sub", "rsub"]
    )
    program = f"class Box:\n    def __init__(self, *_): pass\n    def get(self): return Box()\n    def me(self): return self\n{specials}"
    asserts = "box.get() == 3; box.me() == 3; abs(box.me() - 3.5) < 1; box.get() > 3; 3 in box.get(); 3 in box.me()"
    tests = "".join(
        f"def test_{n}():\n    box = Box(1)\n    assert {each}\n" for n, each in enumerate(asserts.split(";"))
    )
    assert box.do(outcome(box.sandbox, program, PythonTests(f"from solution import Box\n{tests}"))) == (0, 6)


def test_a_failed_test_is_certain_where_another_is_unknown(box):
    tests = PythonTests("def test_a(): assert same(1) == 2\ndef test_b(tmp_path): assert same(1) == 1")
    assert "tmp_path" in box.do(outcome(box.sandbox, PROGRAM, tests))
    assert box.do(outcome(box.sandbox, PROGRAM, tests, stop_at_first_failure=True)) == (0, 1)
