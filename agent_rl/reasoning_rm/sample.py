"""`DataSample`: what a judge is asked about, with the truth: one answer with its score, two with a preference, or more.

    DataSample.from_row(preferences.to_row(example, "train", 0, data_source="helpsteer2"))

The converters of `agent_rl.data.preferences` read the forms of published sets (HelpSteer2, UltraFeedback, hh-rlhf,
JudgeBench, RewardBench, pairs of your own); a sample is made of the row that they write, and can be one itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from agent_rl.data import make_row
from agent_rl.data.shapes import as_messages
from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.verdict import SWAPPED, Winner
from agent_rl.settings.errors import validated
from agent_rl.settings.section import Section

__all__ = ["DataSample"]

SAMPLE = "sample"
"""Key of `extra_info` with a sample's own data."""
ASKED = "asked"
"""Key of `extra_info` of a row whose prompt asks for a verdict on the sample already."""
_RATED = ("score_chosen", "score_rejected")


class DataSample(Section):
    """A question with its answers and what is known of them."""

    query: str = Field(min_length=1)
    """The user's last message."""
    context: str = ""
    """What was said before."""
    answers: list[str] = Field(min_length=1)
    """The candidates; of a pair A and B."""
    scores: list[float] | None = None
    """The true score of each answer."""
    preference: Winner | None = None
    """The better of two answers."""
    criteria: dict[str, str] = Field(default_factory=dict)
    """Descriptions by name."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Further JSON data."""

    @model_validator(mode="after")
    def _fits(self) -> DataSample:
        if self.scores is not None and len(self.scores) != len(self.answers):
            raise ValueError(f"{len(self.scores)} scores for {len(self.answers)} answers")
        if self.preference is not None and len(self.answers) != 2:
            raise ValueError(f"a preference for {len(self.answers)} answers")
        return self

    def swapped(self) -> DataSample:
        """The pair in the other order."""
        changed: dict[str, Any] = {"answers": self.answers[::-1]}
        if self.scores is not None:
            changed["scores"] = self.scores[::-1]
        if self.preference is not None:
            changed["preference"] = SWAPPED[self.preference]
        return self.model_copy(update=changed)

    @property
    def truth(self) -> Any:
        """The ground truth of a row: the preference of a pair, the score of one answer, all scores, or None."""
        if self.preference is not None:
            return self.preference
        if self.scores is None:
            return None
        return f"{self.scores[0]:g}" if len(self.scores) == 1 else list(self.scores)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, score: str = "helpfulness") -> DataSample:
        """The sample of a row of the contract.

        Args:
            row: made by `to_row`, or by a converter of `agent_rl.data.preferences`.
            score: the rating of `extra_info` that is the score of one answer.

        Raises:
            ConfigError: the row has no answers, or they cannot be used.
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
        """A row of the contract, of which `from_row` makes the sample again.

        Raises:
            ConfigError: see `make_row`.
        """
        own = self.model_dump(mode="json", exclude={"query"}, exclude_defaults=True)
        return make_row(
            question=self.query, data_source=data_source, ground_truth=self.truth, split=split, index=index,
            style="model", ability="judge", agent_name=agent_name, extra_info={SAMPLE: own}, **more,
        )  # fmt: skip


def _of_preferences(row: Mapping[str, Any], info: Mapping[str, Any], score: str) -> dict[str, Any]:
    """The fields of a sample, of a converter's row."""
    truth = (row.get("reward_model") or {}).get("ground_truth")
    if info.get("answers"):  # a question to a judge, which is about a question
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
    found: dict[str, Any] = {"query": messages[-1]["content"], "context": before, "answers": [info["chosen"]]}
    if info.get("rejected") is not None:
        found |= {"answers": [info["chosen"], info["rejected"]], "preference": info.get("preference", "A")}
        if all(info.get(name) is not None for name in _RATED):
            found["scores"] = [float(info[name]) for name in _RATED]
    elif info.get(score) is not None:
        found["scores"] = [float(info[score])]
    return {**found, "metadata": _metadata(info, "chosen", "rejected", "preference", score, *_RATED)}


def _metadata(info: Mapping[str, Any], *known: str) -> dict[str, Any]:
    own = {"index", "split", "question", "tools_kwargs", "need_tools_kwargs", "tool_selection", *known}
    return {name: value for name, value in info.items() if name not in own and value is not None}
