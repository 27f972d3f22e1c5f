"""What holds for all tools: `agent_rl.tools`."""

from typing import Literal

from pydantic import Field, model_validator

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section

__all__ = ["CassetteSettings", "ToolsSettings"]


class CassetteSettings(Section):
    """A recording of all tool calls, or its replay, in which no tool is executed."""

    mode: Literal["record", "replay"] | None = None
    """null: neither."""
    path: str | None = None
    """JSONL file, to which a recording appends."""

    @model_validator(mode="after")
    def _complete(self) -> "CassetteSettings":
        if (self.mode is None) != (self.path is None):
            raise InvalidValueError("mode and path go together", "Write both, or neither")
        return self


class ToolsSettings(Section):
    """What holds for all tools; what holds for one stands in its entry of the tool file."""

    max_result_tokens: int | None = Field(default=None, ge=32)
    """Tokens of a result that the policy is shown, instead of verl's limit in characters; null: verl's."""
    cache_path: str | None = None
    """SQLite file on a local disk that keeps the results of tools with `cache: shared`; null: memory only."""
    reuse_results: bool = True
    """Whether a repeated call is answered by the earlier result, where the tool is idempotent."""
    cassette: CassetteSettings = CassetteSettings()
