"""The section `agent_rl.gateway`: the program that `gateway_agent` runs for each episode."""

from __future__ import annotations

from pydantic import Field, model_validator

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section


class GatewaySettings(Section):
    """The user's agent, set by `command`, `function` or `url`. A row's `extra_info.program` overrides `command`."""

    command: str | None = None
    """Shell command of the program, for example `python my_agent.py`."""
    function: str | None = None
    """Python function `file.py:run` or `package.module.run`, which is called with the row, the base URL and the key. A
    process imports it once and calls it in a fork for each episode."""
    python: str | None = None
    """Interpreter of that process, from a virtual environment. Null means the interpreter of the run."""
    url: str | None = None
    """HTTP endpoint that runs the agent. The endpoint gets a POST request with `row`, `base_url` and `api_key`."""
    models: list[str] = Field(default_factory=list)
    """Names of models whose turns are trained. Requests for other models are answered, but not trained. An empty list
    means the name in the first request of each episode."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Maximum number of seconds that the program runs for one row."""
    programs: int = Field(default=16, ge=1)
    """Maximum number of programs that run at once in one agent-loop worker."""
    environment: list[str] = Field(default_factory=list)
    """Names of environment variables with secrets that the program gets. Other variables whose name suggests a secret
    are removed."""
    ground_truth: bool = False
    """Whether the file with the row, which the program reads, includes `ground_truth`."""

    @model_validator(mode="after")
    def _one_agent(self) -> GatewaySettings:
        names = [name for name in ("command", "function", "url") if getattr(self, name) is not None]
        if len(names) > 1:
            raise InvalidValueError(f"{' and '.join(names)} are both set", "Keep one of them")
        if self.python is not None and self.function is None:
            problem = "python is set, but function is not, and python runs only function"
            raise InvalidValueError(problem, "Set function, or remove python and write the interpreter into command")
        return self
