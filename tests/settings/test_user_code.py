"""How exceptions of the user's own code are sorted, and the line that they name."""

import json
import pickle
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agent_rl.errors import EngineError, FatalError, UnscoredError
from agent_rl.settings import user_code
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.user_code import (
    MAX_REPEATS,
    BrokenCallError,
    RepeatedBugs,
    UserCodeError,
    defined_at,
    is_outage,
    is_users,
    place_of,
)

BUGGY = """import json

def call(text):
    return read(text)

def read(text):
    return json.loads(text)["answer"]
"""


def raised_by_user(folder: Path, text: str) -> Exception:
    (folder / "mine.py").write_text(BUGGY)
    function = find_object(f"{folder / 'mine.py'}:call", Place("key"))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each call raises another one
        function(text)
    return caught.value


@pytest.mark.parametrize("text", ["{}", "not JSON"], ids=["in the user's line", "in a library that it calls"])
def test_the_place_is_the_innermost_line_of_the_users_file(tmp_path: Path, text: str):
    assert place_of(raised_by_user(tmp_path, text)) == f"{tmp_path / 'mine.py'}:7"


@pytest.mark.parametrize(
    "folder", [f"{sys.prefix}/project", f"{sys.prefix}-code", f"{Path(user_code.__file__).parents[1]}_tools"]
)
def test_a_file_in_or_next_to_an_environment_is_the_users(folder: str):
    namespace: dict[str, Callable[[str], str]] = {}
    exec(compile(BUGGY, f"{folder}/mine.py", "exec"), namespace)  # noqa: S102 - no file is written into the environment
    with pytest.raises(ValueError, match="Expecting value") as caught:
        namespace["call"]("x")
    assert place_of(caught.value) == f"{folder}/mine.py:7"


def test_an_exception_without_a_frame_of_the_user_names_the_innermost_frame():
    with pytest.raises(ValueError, match="Expecting value") as caught:
        json.loads("x")
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]
    assert "json/decoder.py:" in place_of(caught.value)


def test_the_error_names_what_was_called_the_place_and_the_exception_and_keeps_the_traceback(tmp_path: Path):
    error = UserCodeError.of("component politeness", raised_by_user(tmp_path, "{}"), "Repeat it with: agent-rl ...")
    assert isinstance(error, FatalError)
    place = f"{tmp_path / 'mine.py'}:7"
    assert str(error) == f"component politeness failed at {place}: KeyError: 'answer'. Repeat it with: agent-rl ..."
    assert 'return json.loads(text)["answer"]' in error.trace


def test_the_error_crosses_process_boundaries(tmp_path: Path):
    error = UserCodeError.of("tool x: start", raised_by_user(tmp_path, "{}"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.place, again.trace) == (str(error), error.place, error.trace)


HTTP_404 = httpx.HTTPStatusError("no", request=httpx.Request("GET", "http://x"), response=httpx.Response(404))
HTTP_429 = httpx.HTTPStatusError("busy", request=httpx.Request("GET", "http://x"), response=httpx.Response(429))
OUTAGES: list[Exception] = [
    UnscoredError("the judge is down"),
    EngineError("no answer"),
    TimeoutError(),
    ConnectionResetError(),
    httpx.ConnectError("refused"),
    httpx.ReadTimeout("slow"),
    urllib.error.URLError(ConnectionRefusedError()),
    urllib.error.HTTPError("http://x", 503, "unavailable", None, None),  # type: ignore[arg-type]
    HTTP_429,
    subprocess.TimeoutExpired("latex", 5),
]
BUGS: list[Exception] = [
    ValueError("x"),
    KeyError("x"),
    AttributeError(),
    FileNotFoundError(),
    httpx.InvalidURL("x"),
    HTTP_404,
    urllib.error.HTTPError("http://x", 404, "not found", None, None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("error", [*OUTAGES, *BUGS], ids=lambda error: type(error).__name__)
def test_what_the_infrastructure_did_is_no_bug_and_anything_else_is(error: Exception):
    assert is_outage(error) == (error in OUTAGES)


def test_the_eighth_of_one_bug_stops_the_run_and_others_do_not():
    bugs = RepeatedBugs()
    for number in range(20):
        bugs.add(f"bug {number}", "another")
    for _ in range(MAX_REPEATS - 1):
        bugs.add("bug", "tool x failed")
    with pytest.raises(FatalError, match=r"^tool x failed\. This bug occurred 8 times"):
        bugs.add("bug", "tool x failed")


def test_a_broken_call_names_its_traceback_and_crosses_process_boundaries(tmp_path: Path):
    one, same = (BrokenCallError.of("tool x", raised_by_user(tmp_path, text)) for text in ("{}", '{"a": 1}'))
    other = BrokenCallError.of("tool x", raised_by_user(tmp_path, "no JSON"))
    assert one.bug == same.bug != other.bug
    again = pickle.loads(pickle.dumps(one))
    assert (str(again), again.bug) == (str(one), one.bug)
    assert str(one) == f"tool x failed at {tmp_path / 'mine.py'}:7: KeyError: 'answer'"
    assert is_outage(one)


def test_code_is_the_users_if_it_is_neither_installed_nor_of_the_package():
    assert is_users(raised_by_user)
    assert not any(map(is_users, (json.loads, pytest.raises, place_of, FatalError, len)))
    assert defined_at(raised_by_user).startswith(f"{__file__}:")
