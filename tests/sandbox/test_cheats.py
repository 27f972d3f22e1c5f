"""Programs that want to pass tests without computing the answer, or to make grading fail instead of themselves.

Each is graded against an answer that it cannot guess. It may do what it likes with its own process, including the
channel that reports its value: a forged value is a value, and it is the wrong one.
"""

import asyncio
import json

import pytest

from agent_rl.sandbox import FunctionCase, StdioCase, grade
from agent_rl.sandbox.host.answers import read_result

ANSWER = "zanzibar-40961"
HALVES = f"needle = {ANSWER[:7]!r} + {ANSWER[7:]!r}"
TIMEOUT_S = 2.0

# Finds the mark in the frames below the program, and says what it likes after it.
FORGE = """
import marshal, os, sys, time
def find():
    frame = sys._getframe()
    while not frame.f_locals.get('called'): frame = frame.f_back
    return marshal.loads(frame.f_locals['called'].args[0])[-1]
mark = find().encode()
def say(value, mark=mark): os.write(1, mark + value)
"""
# Finds what checks and writes the value, to change it.
JUDGE = """
import sys
def find():
    frame = sys._getframe()
    while 'marked_value' not in frame.f_globals: frame = frame.f_back
    return frame.f_globals['marked_value'].__globals__
judge = find()
"""

FUNCTIONS = {
    "leave at once": "import os\nos._exit(0)",
    "leave in the function": "import os\ndef f(x): os._exit(0)",
    "leave by an exception": "def f(x): raise SystemExit(0)",
    "leave before the function": "raise SystemExit",
    "leave by a thread": (
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(1)"
    ),
    "leave the first thread": (
        "import ctypes, os, threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), os._exit(0))).start()\n"
        "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)"
    ),
    "an exit handler": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(x): return 41",
    "kill itself": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "no function": "",
    "no Python": "def f(x) return 42",
    "true": "def f(x): return True",
    "print it": "def f(x): print(x)",
    "an imported name": "from operator import truth as f",
    "a class for a function": "class f:\n    def __init__(self, x): pass\n    def __eq__(self, other): return True",
    "an equal to everything": "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "text that equals everything": "class A(str):\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "a list that lies": "class A(list):\n    def __iter__(self): return iter('ab')\ndef f(x): return A()",
    "a class that lies": "class A:\n    __class__ = str\n    def __str__(self): return 'x'\ndef f(x): return A()",
    "a generator": "def f(x): yield x",
    "a coroutine": "async def f(x): return x",
    "bytes": "def f(x): return b'x'",
    "not a number": "def f(x): return float('nan')",
    "infinity": "def f(x): return 1e999",
    "a huge number": "def f(x): return 10 ** 5000",
    "a huge number, written": "import sys\nsys.set_int_max_str_digits(0)\ndef f(x): return 10 ** 100000",
    "a huge text": "def f(x): return 'x' * (5 << 20)",
    "half a character": "def f(x): return '\\ud800'",
    "a deep list": "def f(x):\n    for _ in range(100000): x = [x]\n    return x",
    "a list in itself": "def f(x):\n    x = []\n    x.append(x)\n    return x",
    "a dict with strange keys": "def f(x): return {(1, 2): 3}",
    "a solution that has everything": (
        "class M(type):\n    def __getattr__(cls, name): return lambda self, *a: 1\n"
        "class Solution(metaclass=M):\n    def __getattr__(self, name): return lambda *a: 1"
    ),
    "a namespace that has everything": (
        "import sys\nclass D(dict):\n    def __contains__(self, k): return True\n"
        "    def __missing__(self, k): return lambda x: x\nf = D()[1]\n"
        "sys.modules['__main__'].__class__ = type(sys)"
    ),
    "an exception that hangs": (
        "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef f(x): raise E"
    ),
    "an exception that exits": (
        "import os\nclass E(Exception):\n    def __str__(self): os._exit(0)\n    __repr__ = __str__\ndef f(x): raise E"
    ),
    "a hook that exits": "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\ndef f(x): raise ValueError",
    "an exit code that is no number": (
        "class E(int):\n    def __and__(self, other): return 'x'\ndef f(x): raise SystemExit(E())"
    ),
    "a JSON of its own": (
        "import json\njson.JSONEncoder.encode = json.dumps = lambda *a: 'true'\ndef f(x): return x"
    ),
    "a judge of its own": JUDGE + "judge['_dumps'] = lambda value: 'true'\njudge['plain'] = print\ndef f(x): return x",
    "types of its own": "import builtins\nbuiltins.type = lambda *a: str\nclass A: pass\ndef f(x): return A()",
    "arguments of its own": "import marshal\nmarshal.loads = lambda data: ('abs', [-1], {})\ndef f(x): return x",
    "a traced judge": (
        "import sys\ndef trace(frame, event, arg):\n    if event == 'return': frame.f_locals['passed'] = True\n"
        "    return trace\nsys.settrace(trace)\ndef f(x): return x"
    ),
    "search the objects": (
        HALVES + "\nimport gc\ndef f(x):\n    seen, todo = set(), gc.get_objects()\n"
        "    while todo and len(seen) < 100_000:\n        item = todo.pop()\n        if id(item) in seen: continue\n"
        "        seen.add(id(item))\n"
        "        if type(item) is str and needle != item and needle in item: return item\n"
        "        todo += gc.get_referents(item)"
    ),
    "search the frames": (
        "import sys\ndef f(x):\n    frame, found = sys._getframe().f_back, []\n    while frame:\n"
        "        found += [v for v in frame.f_locals.values() if type(v) in (str, bytes)]\n"
        "        frame = frame.f_back\n"
        "    return str(found)"
    ),
    "forge a value": FORGE + "say(b'true')",
    "forge a value and leave": FORGE + "say(b'true')\nos._exit(0)",
    "forge a value and fail": FORGE + f"say(b'\"{ANSWER}\"')\nos._exit(1)",
    "forge two values": FORGE + f"say(b'\"{ANSWER}\"')\nsay(b'\"other\"')\nos._exit(0)",
    "forge two values in one": FORGE + f"say(b'\"{ANSWER}\" 2')\nos._exit(0)",
    "forge with another mark": FORGE + f"say(b'\"{ANSWER}\"', bytes(32))\nos._exit(0)",
    "forge a value and wait": FORGE + f"say(b'\"{ANSWER}\"')\ntime.sleep(60)",
    "forge half a mark": FORGE + "os.write(1, mark[:9])\nos.close(1)\nos._exit(0)",
    "forge a value without end": FORGE + "say(b'1')\nwhile True: os.write(1, bytes(65536))",
    "forge no value": FORGE + "say(b'')\nos._exit(0)",
    "forge what is no text": FORGE + "say(b'\"\xff\xfe\"')\nos._exit(0)",
    "forge what is no JSON": FORGE + "say(b'__import__(\"os\").abort()')\nos._exit(0)",
    "forge depth": FORGE + "say(b'[' * 200000)\nos._exit(0)",
    "forge a million lists": FORGE + "say(b'[' + b'[],' * 300000 + b'[]]')\nos._exit(0)",
    "forge a number of a million digits": FORGE + "say(b'9' * 1000000)\nos._exit(0)",
    "forge double keys": FORGE + "say(b'{\"a\": 1, \"a\": 2}')\nos._exit(0)",
    "forge constants": FORGE + "say(b'[NaN, -Infinity, 1e999]')\nos._exit(0)",
    "forge at the deadline": FORGE + (
        "import signal\nsignal.signal(signal.SIGRTMAX, lambda *a: (say(b'true'), time.sleep(9)))\nwhile True: pass"
    ),
    "take the order again": FORGE + "os.lseek(0, 0, 0)",
    "close the output": "import os\nos.close(1)\ndef f(x): return x",
    "end as if out of memory": "import os, signal\nos.kill(os.getpid(), signal.SIGRTMAX - 1)",
    "end as if it was not confined": "import os\nos.write(2, b'sandbox: could not be confined')\nos._exit(70)",
}  # fmt: skip

PROGRAMS = {
    "the answer among others": "for n in range(40950, 40970): print('zanzibar-' + str(n))",
    "the answer and an exit code": f"print('{ANSWER}')\nraise SystemExit(3)",
    "the answer and an exception": f"print('{ANSWER}')\nraise ValueError",
    "the answer and a signal": f"print('{ANSWER}', flush=True)\nimport os\nos.kill(os.getpid(), 9)",
    "the answer and a crash": f"print('{ANSWER}', flush=True)\nimport ctypes\nctypes.string_at(0)",
    "the answer and no end": f"print('{ANSWER}', flush=True)\nwhile True: pass",
    "the answer and a thread without end": (
        f"print('{ANSWER}', flush=True)\nimport threading\nthreading.Thread(target=threading.Event().wait).start()"
    ),
    "the answer and no memory": f"print('{ANSWER}', flush=True)\nx = bytearray(20 << 30)",
    "the answer and too much": f"print('{ANSWER}' + chr(10) * (3 << 20))",
    "the answer and an exit handler that fails": (
        f"print('{ANSWER}', flush=True)\nimport atexit, os\natexit.register(os._exit, 4)"
    ),
    "the answer as an error": f"import sys\nsys.stderr.write('{ANSWER}')",
    "the answer to its own input": f"import os\ntry: os.write(0, b'{ANSWER}')\nexcept OSError: pass",
    "the answer with a nothing in it": f"print('{ANSWER}' + chr(0))",
    "the answer with a return": f"print('x' * 20 + chr(13) + '{ANSWER}')",
    "the answer erased": f"print('{ANSWER}', end=chr(8))",
    "the answer in other letters": f"print('{ANSWER}'.upper())",
    "the answer twice": f"print('{ANSWER}')\nprint('{ANSWER}')",
    "the answer later": f"import sys\nsys.stdout.write('\\n\\n{ANSWER}')",
    "nothing": "",
    "its input": "print(input())",
}  # fmt: skip


@pytest.fixture(scope="module")
def reports(box):
    """The reports of all programs, each with an honest one's after it."""
    function = [FunctionCase("f", [3], ANSWER)]
    program = [StdioCase("3\n", ANSWER)]
    jobs = [(name, code, function) for name, code in FUNCTIONS.items()]
    jobs += [(name, code, program) for name, code in PROGRAMS.items()]

    async def main():
        graded = (grade(code, tests, sandbox=box.sandbox, timeout_s=TIMEOUT_S) for _, code, tests in jobs)
        done = await asyncio.gather(*graded)
        honest = await grade(f"def f(x): return {ANSWER!r}", function, sandbox=box.sandbox)
        return {name: report for (name, _, _), report in zip(jobs, done, strict=True)} | {"honest": honest}

    return box.do(main())


@pytest.mark.parametrize("name", [*FUNCTIONS, *PROGRAMS])
def test_it_is_not_passed_and_learns_nothing(reports, name):
    (case,) = reports[name].cases
    assert not case.passed
    assert case.reason
    assert name in PROGRAMS or ANSWER not in case.reason
    assert case.own_s < TIMEOUT_S + 2


def test_an_honest_program_after_them_is(reports):
    assert reports["honest"].fraction == 1


def test_a_program_sees_the_input_of_its_own_case_alone(box):
    """Neither the other cases nor how many there are: the program counts what looks like an input of this test."""
    code = """
import gc, sys
def f(x):
    seen, todo, found = set(), gc.get_objects(), set()
    frame = sys._getframe()
    while frame:
        todo += list(frame.f_locals.values())
        frame = frame.f_back
    while todo and len(seen) < 200_000:
        item = todo.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if type(item) is int and 7_000_000 < item < 7_000_010: found.add(item)
        todo += gc.get_referents(item)
    return sorted(found)
"""
    cases = [FunctionCase("f", [7_000_000 + n], [7_000_000 + n]) for n in range(1, 9)]
    assert box.do(grade(code, cases, sandbox=box.sandbox, timeout_s=10)).fraction == 1


def test_a_value_that_is_much_too_long_is_not_even_read(box, monkeypatch):
    read = []
    monkeypatch.setattr(
        "agent_rl.sandbox.host.grading.read_result", lambda text: read.append(text) or read_result(text)
    )

    code = "def f(x): return [[]] * x"
    long = box.do(grade(code, [FunctionCase("f", [200_000], [1])], sandbox=box.sandbox))
    right = box.do(grade(code, [FunctionCase("f", [9000], [[]] * 9000)], sandbox=box.sandbox))
    assert (long.fraction, right.fraction) == (0, 1)
    assert [len(json.loads(text)) for text in read] == [9000]
    assert "wrong value" in long.cases[0].reason
