"""`sandbox_fusion`: runs the policy's code on a Sandbox Fusion server (https://github.com/bytedance/SandboxFusion).

    tools:
      - name: sandbox_fusion
        config:
          url: http://localhost:8080      # with or without /run_code
          timeout_s: 10                   # time limit for the code, in seconds
          memory_limit_mb: 1024           # MiB; the keys are the same as in verl's reward.sandbox_fusion
          max_concurrent: 64              # concurrent runs per process
          language: python                # or another that the server supports, with a `description`

Every call is a new run without state. If the code fails or runs too long, the policy gets its output and the error. If
the server is down, is overloaded or reports an internal error, the trajectory is unscored.
The server is responsible for isolation. If you have no server, use `python`, which runs on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.remote import Remote
from agent_rl.remote.http import SERVER_URL, bearer
from agent_rl.sandbox.fusion import FusionCommand, limits_for, run_remotely
from agent_rl.settings.errors import validated
from agent_rl.tools.base import Tool, ToolConfig, ToolOutput
from agent_rl.tools.truncation import truncate

MAX_CODE_CHARS = 100_000


class SandboxFusionConfig(ToolConfig):
    """The entry's `config`."""

    url: str = Field(pattern=SERVER_URL, examples=["http://localhost:8000"])
    """Address of the server, with or without /run_code."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Time limit for running the code, in seconds."""
    compile_timeout_s: float = Field(default=10.0, gt=0)
    """Time limit for compiling the code, in seconds."""
    memory_limit_mb: int = Field(default=1024, ge=1)
    """Memory limit for the code, in MiB."""
    max_concurrent: int = Field(default=64, ge=1)
    """Maximum number of concurrent runs per process."""
    language: str = Field(default="python", min_length=1)
    attempts: int = Field(default=6, ge=1)
    """Maximum number of attempts to reach the server."""
    max_output_chars: int = Field(default=10_000, ge=1)
    """Maximum number of characters of the output, and of the errors, that the policy sees."""
    api_key_env: str | None = None
    """Name of the environment variable that contains a bearer token."""


class SandboxFusion(Tool):
    """A stateless tool that runs one program per call."""

    name = "sandbox_fusion"
    Config = SandboxFusionConfig
    settings: SandboxFusionConfig
    outside = True
    description = "Run Python code in a fresh process and get what it prints. Use print to see a value."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "A whole program, for example print(2**100)"}},
        "required": ["code"],
    }
    timeout_s: ClassVar[float | None] = 600.0
    """A time limit longer than all retries together, so that a slow server does not count as the policy's mistake."""

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for invalid settings, without contacting the server."""
        _remote(validated(SandboxFusionConfig, config))

    async def start(self) -> None:
        """Get the connections that this process shares."""
        remote = _remote(self.settings)
        self.remote = await self.scope.get(remote, lambda: remote)

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Run the code and return its output."""
        code = arguments["code"]
        if len(code) > MAX_CODE_CHARS:
            raise ToolError(f"the code has {len(code)} characters; at most {MAX_CODE_CHARS} are run")
        if any("\ud800" <= character <= "\udfff" for character in code):
            raise ToolError("the code contains characters that are not valid Unicode")
        settings = self.settings
        payload = {
            "code": code,
            "language": settings.language,
            "run_timeout": settings.timeout_s,
            "compile_timeout": settings.compile_timeout_s,
            "memory_limit_MB": settings.memory_limit_mb,
        }
        answer = await run_remotely(self.remote, settings.url, payload)
        for result in (answer.compile_result, answer.run_result):
            if result is not None:
                self._raise_for(result)
        result = answer.run_result or FusionCommand(status="Finished")
        text = self._output(result) or "(no output; use print to see a value)"
        return ToolOutput(text, metrics={"execution_s": result.execution_time})

    def _raise_for(self, result: FusionCommand) -> None:
        is_late, code = result.status == "TimeLimitExceeded", result.return_code
        if not is_late and not code:
            return
        killed = " (killed, perhaps for using too much memory)" if code in (-9, 137) else ""
        problem = "the code did not finish in time" if is_late else f"the code ended with exit status {code}{killed}"
        text = "\n".join(filter(None, (problem, self._output(result))))
        raise ToolTimeoutError(text) if is_late else ToolError(text)

    def _output(self, result: FusionCommand) -> str:
        """Return the output, followed by the errors; only the end of long errors is kept."""
        limit = self.settings.max_output_chars
        output = truncate((result.stdout or "").rstrip(), limit, "middle")
        errors = truncate((result.stderr or "").rstrip(), limit, "left")
        return "\n".join(part for part in (output, errors) if part)


@cache
def _remote(settings: SandboxFusionConfig) -> Remote:
    run_s = settings.timeout_s + settings.compile_timeout_s
    limits = limits_for(run_s, attempts=settings.attempts, max_concurrent=settings.max_concurrent)
    return Remote(headers=bearer(settings.api_key_env, "api_key_env"), limits=limits)
