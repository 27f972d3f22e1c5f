"""A function of a file runs in forks of a process, which has imported the file once."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.sessions import program
from agent_rl.agents.sessions.program import ProgramEnd, run_program
from agent_rl.errors import ConfigError
from agent_rl.settings.sections import GatewaySettings
from tests.support.http_faults import FaultyServer, answer

PYTHON = f"{sys.base_prefix}/bin/python3"
"""Has none of our packages."""
FILE = """
import asyncio, json, os, pathlib, signal, subprocess, sys, time

HERE = pathlib.Path(__file__).parent
(HERE / "imports").open("a").write("x")
calls = 0

def run(row, base_url, api_key):
    global calls
    calls += 1
    seen = {"row": row, "base_url": base_url, "api_key": api_key, "calls": calls, "python": sys.prefix}
    (HERE / f"{api_key}.json").write_text(json.dumps({**seen, "environment": dict(os.environ)}))
    exec(row["extra_info"].get("code", ""), globals())

def make(error):
    try:
        raise error
    except Exception as raised:
        return raised

async def run_async(row, base_url, api_key):
    await asyncio.sleep(0)
    run(row, base_url, api_key)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Callable[..., GatewaySettings]]:
    """Makes the settings of a function in this file."""
    file = tmp_path / "my_agent.py"
    file.write_text(FILE)

    def make(name: str = "run", **values: Any) -> GatewaySettings:
        return GatewaySettings.model_validate({"function": f"{file}:{name}", "python": PYTHON, **values})

    yield make
    while program._workers:
        program._workers.popitem()[1].close()


def run_all(settings: GatewaySettings, *codes: str) -> list[ProgramEnd]:
    """Run a program for each code, which it executes; their keys are `0`, `1`, ..."""

    async def main() -> list[ProgramEnd]:
        rows = [{"prompt": [], "extra_info": {"code": code}} for code in codes]
        ends = (run_program(settings, row, "http://gateway", str(number)) for number, row in enumerate(rows))
        return await asyncio.gather(*ends)

    return asyncio.run(main())


@pytest.mark.parametrize(("name", "python"), [("run", PYTHON), ("run_async", None)])
def test_the_file_is_imported_once_and_each_call_is_a_fork(
    settings: Callable[..., GatewaySettings], name: str, python: str | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("MY_TOKEN", "hidden")
    monkeypatch.setenv("NO_PROXY", ".local")
    assert run_all(settings(name, python=python), "", "") == [ProgramEnd(), ProgramEnd()]
    assert (tmp_path / "imports").read_text() == "x"
    for key in ("0", "1"):
        seen = json.loads((tmp_path / f"{key}.json").read_text())
        assert seen["row"] == {"prompt": [], "extra_info": {"code": ""}}
        assert (seen["base_url"], seen["api_key"], seen["calls"]) == ("http://gateway/v1", key, 1)
        assert seen["python"] == (sys.base_prefix if python else sys.prefix)
        assert (seen["environment"]["OPENAI_BASE_URL"], seen["environment"]["OPENAI_API_KEY"]) == (
            seen["base_url"], key,
        )  # fmt: skip
        assert "MY_TOKEN" not in seen["environment"]
        assert seen["environment"]["no_proxy"] == ".local,gateway"


def test_a_failure_names_the_line_of_the_users_file(settings: Callable[..., GatewaySettings], tmp_path: Path) -> None:
    (end,) = run_all(settings(), "json.loads('{')")
    assert end.problem is not None
    assert end.problem.startswith("the program failed: json.decoder.JSONDecodeError: ")
    line = next(number for number, text in enumerate(FILE.splitlines(), 1) if "exec(" in text)
    assert end.bug == f"json.decoder.JSONDecodeError at {tmp_path}/my_agent.py:{line}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
def test_a_group_of_exceptions_names_its_last_one(settings: Callable[..., GatewaySettings], tmp_path: Path) -> None:
    (end,) = run_all(settings(), "raise ExceptionGroup('tasks', [make(OSError('a')), make(KeyError('b\\nc'))])")
    line = next(number for number, text in enumerate(FILE.splitlines(), 1) if "raise error" in text)
    assert end.bug == f"KeyError at {tmp_path}/my_agent.py:{line}"
    assert str(end.problem).startswith("the program failed: KeyError: ")


def test_a_long_failure_in_any_characters_is_read(settings: Callable[..., GatewaySettings]) -> None:
    (end,) = run_all(settings(), "raise ValueError('\\U0001f389' * 9000)")
    assert str(end.problem).startswith("the program failed: ValueError: \U0001f389")


def test_an_endpoint_gets_values_that_are_not_json_as_text() -> None:
    row = {"prompt": [], "extra_info": {"day": date(2026, 1, 31)}}
    with FaultyServer(answer(200, {})) as server:
        end = asyncio.run(run_program(GatewaySettings(url=server.url), row, "http://gateway", "key"))
    assert end == ProgramEnd()
    assert json.loads(server.requests[0].body)["row"]["extra_info"] == {"day": "2026-01-31"}


def test_output_that_only_resembles_a_traceback_is_no_bug() -> None:
    command = """printf ' File "data.csv" is missing\\nusage: mine\\n'; exit 3"""
    assert run_all(GatewaySettings(command=command), "") == [ProgramEnd("the program exited with code 3: usage: mine")]


def test_an_exit_code_is_a_failure_and_no_bug(settings: Callable[..., GatewaySettings]) -> None:
    for end in run_all(settings(), "sys.exit('unknown tool')", "sys.exit(3)"):
        assert "SystemExit" in str(end.problem)
        assert not end.bug


def test_a_fork_that_dies_is_the_programs_crash_and_a_worker_that_died_is_replaced(
    settings: Callable[..., GatewaySettings],
) -> None:
    given = settings()
    died, fine = run_all(given, "os.kill(os.getpid(), signal.SIGKILL)", "")
    assert (died.problem, fine) == ("the program failed: its process died", ProgramEnd())
    (killed,) = run_all(given, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.2)")
    assert killed == ProgramEnd()  # the fork lives on
    assert run_all(given, "") == [ProgramEnd()]


def test_a_program_that_does_not_end_is_killed_with_its_children(
    settings: Callable[..., GatewaySettings], tmp_path: Path
) -> None:
    sleep = "p = subprocess.Popen(['sleep', '60']); (HERE / 'child').write_text(str(p.pid)); time.sleep(60)"
    (end,) = run_all(settings(timeout_s=1), sleep)
    assert end.problem == "the program did not finish within 1 s"
    child = Path("/proc") / (tmp_path / "child").read_text()
    for _ in range(100):
        if not child.exists() or ") Z" in (child / "stat").read_text():
            return
        time.sleep(0.02)
    pytest.fail("the program's child lives")


@pytest.mark.parametrize(
    ("values", "text", "problem"),
    [
        ({"python": "/no/python"}, "", r"agent_rl\.gateway\.python: there is no interpreter '/no/python'"),
        ({"python": "/bin/false"}, "", "cannot import '.*my_agent.py:run': it exited"),
        ({"function": "my_agent.py:walk"}, "", "module 'my_agent' has no attribute 'walk'"),
        ({}, "import langgraph_of_mine", r"No module named 'langgraph_of_mine' .*my_agent.py:1\)"),
        ({"timeout_s": 0.3}, "import time; time.sleep(60)", "the import took more than 0.3 s"),
    ],
)
def test_what_cannot_be_imported_is_fatal(
    settings: Callable[..., GatewaySettings],
    values: dict[str, Any], text: str, problem: str, here: Path,
) -> None:  # fmt: skip
    (here / "my_agent.py").write_text(f"{text}\n{FILE}")
    with pytest.raises(ConfigError, match=problem):
        run_all(settings(**values), "")


def test_the_worker_ends_with_its_parent(settings: Callable[..., GatewaySettings]) -> None:
    worker = program.function_worker(settings())
    worker._control.close()  # as when the process exits
    assert worker.process.wait(5) == 0


@pytest.mark.parametrize("is_command", [True, False])
def test_programs_run_with_limits_and_so_many_at_once(
    settings: Callable[..., GatewaySettings], tmp_path: Path, is_command: bool
) -> None:
    code = (
        "import json, os, resource, time; start = time.time(); time.sleep(0.3); "
        "limits = [resource.getrlimit(which)[1] for which in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]; "
        f"json.dump([start, time.time(), *limits], open(r'{tmp_path}/' + str(os.getpid()) + '.ran', 'w'))"
    )
    command = {"command": f'{PYTHON} -c "{code}"', "function": None, "python": None}
    given = settings(programs=2, **(command if is_command else {}))
    assert run_all(given, *[code] * 5) == [ProgramEnd()] * 5
    runs = [json.loads(file.read_text()) for file in tmp_path.glob("*.ran")]
    assert [limits for _, _, *limits in runs] == [[0, 2**32]] * 5
    assert max(sum(start <= other < end for start, end, *_ in runs) for other, *_ in runs) == 2


def test_python_needs_a_function() -> None:
    with pytest.raises(ValueError, match="python is set, but"):
        GatewaySettings(command="python my_agent.py", python=PYTHON)
