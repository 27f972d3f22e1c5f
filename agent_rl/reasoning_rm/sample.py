"""`DataSample` is a question with one or more answers to judge, and the true scores or preference.

    DataSample.from_row(preferences.to_row(example, "train", 0, data_source="helpsteer2"))

The converters of `agent_rl.data.preferences` convert published data sets (HelpSteer2, UltraFeedback, hh-rlhf,
JudgeBench, RewardBench) and your own pairs to rows. `from_row` creates a sample from such a row, or from a row that
`to_row` created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from agent_rl.data import make_row
from agent_rl.data.shapes import as_messages
from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.verdict import SWAPPED, Winner
from agent_rl.settings.errors import Section, validated

SAMPLE = "sample"
"""The `extra_info` key whose value is a sample's data."""
ASKED = "asked"
"""The `extra_info` key that marks a row whose prompt already asks for a verdict on the sample."""
_RATED = ("score_chosen", "score_rejected")


class DataSample(Section):
    """A question with answers to judge, and data about the answers."""

    query: str = Field(min_length=1)
    """The user's last message."""
    context: str = ""
    """The conversation before the user's last message, as text."""
    answers: list[str] = Field(min_length=1)
    """The answers to judge; for a pair, answer A and then answer B."""
    scores: list[float] | None = None
    """The true score of each answer."""
    preference: Winner | None = None
    """The better of two answers."""
    criteria: dict[str, str] = Field(default_factory=dict)
    """The criteria by which to judge: descriptions by name."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Additional JSON data."""

    @model_validator(mode="after")
    def _check_counts(self) -> DataSample:
        if self.scores is not None and len(self.scores) != len(self.answers):
            raise ValueError(f"expected one score per answer, got {len(self.scores)} for {len(self.answers)}")
        if self.preference is not None and len(self.answers) != 2:
            raise ValueError(f"a preference needs two answers, got {len(self.answers)}")
        return self

    def swapped(self) -> DataSample:
        """Return a copy of the pair in the other order."""
        changed: dict[str, Any] = {"answers": self.answers[::-1]}
        if self.scores is not None:
            changed["scores"] = self.scores[::-1]
        if self.preference is not None:
            changed["preference"] = SWAPPED[self.preference]
        return self.model_copy(update=changed)

    @property
    def truth(self) -> Any:
        """The ground truth for a row: the preference, the scores (one number for a single answer), or None."""
        if self.preference is not None:
            return self.preference
        if self.scores is None:
            return None
        return repr(self.scores[0]).removesuffix(".0") if len(self.scores) == 1 else list(self.scores)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, score: str = "helpfulness") -> DataSample:
        """Create a sample from a row.

        Args:
            row: a row from `to_row` or from a converter of `agent_rl.data.preferences`.
            score: name of the rating in `extra_info` to use as the score of a single answer.

        Raises:
            ConfigError: the row has no answers, or its answers cannot be used.
        """
        info = row.get("extra_info") or {}
        place = f"{row.get('data_source')}, {info.get('split', '')} row {info.get('index')}"
        try:
            if own := info.get(SAMPLE):
                return validated(cls, {"query": info.get("question"), **own})
            return validated(cls, _of_preferences(row, info, score))
        except ConfigError as error:
            raise ConfigError(f"{place}, {error.key}", error.problem, error.remedy) from error

    def to_row(
        self, data_source: str, split: str, index: int | str, *, agent_name: str = "single_turn_agent", **more: Any
    ) -> dict[str, Any]:
        """Create a row from which `from_row` can restore the sample.

        Raises:
            ConfigError: see `make_row`.
        """
        own = self.model_dump(mode="json", exclude={"query"}, exclude_defaults=True)
        return make_row(
            question=self.query, data_source=data_source, ground_truth=self.truth, split=split, index=index,
            style="model", ability="judge", agent_name=agent_name, extra_info={SAMPLE: own}, **more,
        )  # fmt: skip


def _of_preferences(row: Mapping[str, Any], info: Mapping[str, Any], score: str) -> dict[str, Any]:
    """Read a sample's fields from a row that a converter created."""
    truth = (row.get("reward_model") or {}).get("ground_truth")
    if info.get("answers"):  # the prompt is written for a judge, so the query is in `question`
        return {
            "query": info.get("question"), "answers": list(info["answers"]), "preference": truth,
            "metadata": _metadata(info, "answers"),
        }  # fmt: skip
    if info.get("chosen") is None:
        raise ConfigError(
            "extra_info", "the row has no answers to judge", "Write rows with DataSample.to_row or a converter"
        )
    messages, _, _ = as_messages(row.get("prompt"), "column prompt")
    before = "\n\n".join(f"{message['role']}: {message['content']}" for message in messages[:-1])
    fields: dict[str, Any] = {"query": messages[-1]["content"], "context": before, "answers": [info["chosen"]]}
    if info.get("rejected") is not None:
        fields |= {"answers": [info["chosen"], info["rejected"]], "preference": info.get("preference", "A")}
        if all(info.get(name) is not None for name in _RATED):
            fields["scores"] = [float(info[name]) for name in _RATED]
    elif info.get(score) is not None:
        fields["scores"] = [float(info[score])]
    return {**fields, "metadata": _metadata(info, "chosen", "rejected", "preference", score, *_RATED)}


def _metadata(info: Mapping[str, Any], *known: str) -> dict[str, Any]:
    own = {"index", "split", "question", "tools_kwargs", "need_tools_kwargs", "tool_selection", *known}
    return {name: value for name, value in info.items() if name not in own and value is not None}
