"""`rules` and `tags`: components that check the wording and format of text.

    components:
      policy:
        kind: rules
        config: {all_of: [refund], none_of: [guarantee], patterns: ['order #[0-9]+'], where: answer}
      shape:
        kind: tags
        config: {tags: [think, answer], where: last_turn}

The value is in [0, 1]: the share of the rules that the text follows, or the share of the tags that are well-formed.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field

from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.rewards.scorers.text_rules import TextRules, kept, tag_share
from agent_rl.trajectory import Trajectory

Where = Literal["answer", "last_turn", "response"]
"""The text to check: the final answer, the last turn, or all turns."""


class RulesConfig(TextRules, ComponentConfig):
    """The rules, and the text to which they apply."""

    where: Where = "answer"


class TagsConfig(ComponentConfig):
    """The tags in the order in which they must occur, and the text to check."""

    tags: tuple[str, ...] = Field(min_length=1)
    alone: bool = False
    """Whether text outside the tags makes the value 0."""
    all_or_nothing: bool = False
    """Whether the value is 0 unless every tag is well-formed."""
    where: Where = "last_turn"


class Rules(Component, kind="rules"):
    """Measures the share of the rules that the text follows, or 0 if there is no text."""

    Config = RulesConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the share of the rules that the text follows; the notes list the broken rules."""
        text = _text(trajectory, self.config.where)
        if text is None:
            return Value(0.0)
        outcome = await asyncio.to_thread(kept, text, self.config)
        broken = [rule for rule, share in outcome.items() if not share]
        return Value(sum(outcome.values()) / len(outcome), notes={"broken": broken} if broken else {})


class Tags(Component, kind="tags"):
    """Measures the share of the tags that occur exactly once, closed and in order."""

    Config = TagsConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the share of well-formed tags."""
        text = _text(trajectory, self.config.where) or ""
        share = tag_share(text, self.config.tags, alone=self.config.alone)
        return Value(float(share == 1.0) if self.config.all_or_nothing else share)


def _text(trajectory: Trajectory, where: Where) -> str | None:
    if where == "answer":
        return trajectory.answer
    turns = trajectory.turns[-1:] if where == "last_turn" else trajectory.turns
    return "\n".join(turn.text for turn in turns) if turns else None
