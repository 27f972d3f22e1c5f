"""Runs programs on a Sandbox Fusion server (https://github.com/bytedance/SandboxFusion) instead of on this machine.

`run_remotely` runs a program, and `grade_remotely` grades a program. The server is responsible for isolation.
"""

from __future__ import annotations

import asyncio
import marshal
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from agent_rl.errors import ConfigError
from agent_rl.remote import Remote, RemoteError, RemoteLimits
from agent_rl.remote.http import SERVER_URL
from agent_rl.sandbox.host.cases import Case, StdioCase, read_cases
from agent_rl.sandbox.host.execution import ExecutionStatus
from agent_rl.sandbox.host.grading import CaseResult, GradeReport, difference, grade_in_order
from agent_rl.sandbox.jail.call import PRELUDE
from agent_rl.work.concurrency import gate

TRIES = 3
"""Maximum number of times to run a program when the server reports an internal error."""
SLACK_S = 10.0
"""Extra seconds for the server, in addition to the program's run time."""
_PAUSE_S = 0.5
_LOOK_S = 0.02  # seconds between attempts to acquire the semaphore

_CALLER = """
sys.modules["solution"], __name__ = sys.modules[__name__], "solution"
exec(compile({code!a}, "solution.py", "exec"))
import json as _json, marshal as _marshal, sys as _sys
_args, _kwargs = _marshal.loads(bytes.fromhex(_sys.stdin.read()))
_is_method = hasattr(globals().get("Solution"), {name!r})
_function = getattr(Solution(), {name!r}) if _is_method else globals()[{name!r}]
_value = _function(*_args, **_kwargs)
print({mark!r} + _json.dumps(_value))
"""


class FusionCommand(BaseModel):
    """The server's report on compiling or running a program."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class FusionAnswer(BaseModel):
    """The server's answer for a program."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: FusionCommand | None = None
    run_result: FusionCommand | None = None


@dataclass(frozen=True)
class FusionServer:
    """A server that grades programs, with the keys of verl's `reward.sandbox_fusion`.

    Attributes:
        url: the server's address, with or without /run_code.
        memory_limit_mb: memory limit for one case, in MiB.
        timeout_s: time limit for one case, in seconds.
        max_concurrent: maximum number of concurrent cases per process.
        semaphore: an object like `threading.Semaphore` that is held while a case runs; verl's processes share it.
    """

    url: str
    memory_limit_mb: int = 1024
    timeout_s: float = 10.0
    max_concurrent: int = 64
    semaphore: Any = None

    def __post_init__(self) -> None:
        """Raise ConfigError if `url` is not a URL."""
        if not re.match(SERVER_URL, self.url):
            problem = f"expected a URL with http:// or https:// and a host, got {self.url!r}"
            raise ConfigError("reward.sandbox_fusion.url", problem, "Write, for example, http://localhost:8080")


async def run_remotely(remote: Remote, url: str, payload: Mapping[str, Any]) -> FusionAnswer:
    """Run one program on the server and return the server's answer.

    Args:
        remote: client that sends the requests.
        url: the server's address, with or without /run_code.
        payload: the request, in the format of the server's API.

    Raises:
        RemoteError: the server does not answer.
    """
    url = url.rstrip("/").removesuffix("/run_code") + "/run_code"
    host = url.split("/")[2].rpartition("@")[2]
    for number in range(TRIES):
        await asyncio.sleep(number * _PAUSE_S)
        try:
            answer = FusionAnswer.model_validate(await remote.post_json(url, payload))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise RemoteError(host, f"this is not a Sandbox Fusion response: {field}: {first['msg']}") from None
        if answer.status != "SandboxError":
            return answer
    raise RemoteError(host, "Sandbox Fusion reports an internal error", 200, TRIES)


async def grade_remotely(code: str, tests: Any, server: FusionServer, *, float_tolerance: float = 0.0) -> GradeReport:
    """Run `code` on each case, as `grade` does; the expected values stay on this machine.

    Args:
        code: the program, in Python.
        tests: the cases, in one of the forms that `read_cases` accepts.
        server: the server that runs the program.
        float_tolerance: see `grade`.

    Raises:
        ConfigError: the tests cannot be read.
        RemoteError: the server failed.
    """
    cases = read_cases(tests)
    async with _remote(limits_for(2 * server.timeout_s, max_concurrent=server.max_concurrent)) as remote:
        run = partial(_run, remote, server, code, float_tolerance)
        return await grade_in_order(run, cases, at_once=server.max_concurrent)


async def _run(remote: Remote, server: FusionServer, code: str, tolerance: float, case: Case) -> CaseResult:
    mark = secrets.token_hex(8)
    if isinstance(case, StdioCase):
        program, stdin = code, case.stdin
    else:
        program = PRELUDE + _CALLER.format(code=code, name=case.function, mark=mark)
        arguments: Any = case.args, case.kwargs
        stdin = marshal.dumps(arguments, 4).hex()  # a format that Python 3.4 and later read
    payload = {
        "code": program,
        "stdin": stdin,
        "language": "python",
        "run_timeout": server.timeout_s,
        "compile_timeout": server.timeout_s,
        "memory_limit_MB": server.memory_limit_mb,
    }
    if server.semaphore is not None:
        async with gate(server, 1):
            while not server.semaphore.acquire(False):  # noqa: ASYNC110 - a blocked thread could not be cancelled
                await asyncio.sleep(_LOOK_S)
    try:
        answer = await run_remotely(remote, server.url, payload)
    finally:
        if server.semaphore is not None:
            server.semaphore.release()
    result = answer.run_result or FusionCommand(status="Error")
    if result.status == "TimeLimitExceeded":
        return CaseResult(False, ExecutionStatus.TIMEOUT, "timeout")
    if answer.status == "Failed" or result.return_code:
        return CaseResult(False, ExecutionStatus.ERROR, f"exit status {result.return_code}")
    stdout = result.stdout or ""
    _, mark_found, value = stdout.rpartition(mark)
    reason = difference(case, stdout, value if mark_found else None, tolerance)
    return CaseResult(not reason, ExecutionStatus.OK, reason, result.execution_time or 0.0)


def limits_for(run_s: float, **limits: int) -> RemoteLimits:
    """Return the limits for requests to a server.

    Args:
        run_s: time limit for compiling and running a program, in seconds.
        limits: other limits, such as `max_concurrent`.
    """
    attempt_s = run_s + SLACK_S
    # A server's answer has up to 1 MiB per stream, and JSON's escapes can make that six times as long.
    return RemoteLimits(timeout_s=attempt_s, total_s=3 * attempt_s + 30, max_bytes=16 * 1024 * 1024, **limits)


@cache
def _remote(limits: RemoteLimits) -> Remote:
    return Remote(limits=limits)
