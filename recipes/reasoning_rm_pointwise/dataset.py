"""Rows of HelpSteer2 as questions to a judge; the recipe sets this class as `data.custom_cls`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_rl.reasoning_rm import BaseTrainDataset, RewardModule, find_template

HelpfulnessTemplate = find_template(f"{Path(__file__).with_name('template.py')}:HelpfulnessTemplate")


class HelpfulnessDataset(BaseTrainDataset):
    """Rows with one answer each; the ground truth is the answer's helpfulness."""

    score = "helpfulness"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.reward_module = RewardModule(
            name="helpfulness",
            template=HelpfulnessTemplate,
            examples=self._get_examples(),
        )
        super().__init__(*args, **kwargs)

    def _get_examples(self) -> Sequence[str]:
        return []  # strings with a query, an answer and its score; each adds its tokens to every prompt

    def _build_messages(self, example: dict[str, Any], key: str | None = None) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.reward_module.format(sample=example)}]
