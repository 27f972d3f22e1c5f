"""Data sets for training a judge model, with prompts from a template and ground truths from samples.

    class MyDataset(BaseTrainDataset):   # data.custom_cls: {path: my_dataset.py, name: MyDataset}
        def __init__(self, *args, **kwargs):
            self.reward_module = RewardModule(name="helpfulness", template=MyTemplate, examples=self._get_examples())
            super().__init__(*args, **kwargs)

        def _build_messages(self, example):
            return [{"role": "user", "content": self.reward_module.format(sample=example)}]

Rows may have any form that `DataSample.from_row` reads. One setting, `data.apply_chat_template_kwargs.enable_thinking`,
decides whether the chat template or the prompt asks for thoughts: the prompt does if the chat template does not.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm.reward_module import RewardModule
from agent_rl.reasoning_rm.sample import ASKED, SAMPLE, DataSample
from agent_rl.rewards.judge.kinds import PairwiseTemplate, PointwiseTemplate
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.verl_adapter.row_data_set import RowDataSet

Messages = list[dict[str, str]]
_OPTIONS = "data.apply_chat_template_kwargs"
_ASKS = re.compile(r"^\s*<think>\s*$", re.MULTILINE)


class BaseTrainDataset(RowDataSet):
    """Rows whose prompts ask for a verdict.

    Users may override `_build_messages`, `_get_examples`, `_extract_ground_truth` and `_get_data_source`.

    Raises:
        ConfigError: the chat template and the prompts both ask for thoughts, or a row has no ground truth.
    """

    template: type[BasePromptTemplate] | None = None
    """The prompt template of a class that sets no `reward_module`."""
    desc: str | None = None
    """Description of the task; None means the template's description."""
    reward_module: RewardModule | None = None
    score = "helpfulness"
    """Name of the rating in `extra_info` that is an answer's ground truth."""

    def __init__(
        self, data_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        options = dict(config.get("apply_chat_template_kwargs") or {})
        self._chat_thinks = chat_thinks(tokenizer, options)
        if self.reward_module is None and self.template is not None:
            examples = self._get_examples()
            self.reward_module = RewardModule(type(self).__name__, self.template, examples, desc=self.desc)
        if self.reward_module is not None:
            self.reward_module.set_chat_thinking(self._chat_thinks)
        self._build_messages = _prompt  # type: ignore[method-assign] # verl's call does not fit the user's method
        super().__init__(data_files, tokenizer, config, processor, max_samples)
        if len(self):
            self._check_prompt(self.dataframe[0][self.prompt_key])

    def _converted(self, row: dict[str, Any]) -> dict[str, Any]:
        """Convert a row to a question for the judge, unless it already is a question, and add the ground truth."""
        info = row.get("extra_info") or {}
        if not info.get(ASKED):
            sample = self._ordered(self.sample(row), info.get("index"))
            own = sample.model_dump(mode="json", exclude={"query"}, exclude_defaults=True)
            info = {name: value for name, value in info.items() if name not in ("chosen", "rejected")}
            row["extra_info"] = {**info, SAMPLE: own, "question": sample.query}
            row[self.prompt_key] = list(type(self)._build_messages(self, row))
        truth = self._extract_ground_truth(row)
        if truth is None:
            place = f"{row.get('data_source')}, {info.get('split', '')} row {info.get('index')}"
            remedy = f"Give the row extra_info.{self.score}, scores or a preference, or remove the row"
            raise ConfigError(place, "the row has no ground truth for training a judge", remedy)
        row["reward_model"] = {**(row.get("reward_model") or {}), "style": "rule", "ground_truth": truth}
        row["data_source"] = self._get_data_source(row)
        return row

    def sample(self, example: Mapping[str, Any]) -> DataSample:
        """Return the sample of a row.

        Raises:
            ConfigError: the row has no sample.
        """
        return DataSample.from_row(example, score=self.score)

    def _build_messages(self, example: dict[str, Any], key: str | None = None) -> Messages:
        """Return the messages that ask for a verdict on a row."""
        if self.reward_module is None:
            problem = f"{type(self).__name__} has neither a reward_module nor _build_messages"
            raise ConfigError("data.custom_cls", problem, "Set template, or self.reward_module before super().__init__")
        return [{"role": "user", "content": self.reward_module.format(sample=self.sample(example))}]

    def _apply_chat_template(self, messages: Messages) -> str:
        """Render the prompt as the agent loop does; an override whose result differs is rejected."""
        options = dict(self.config.get("apply_chat_template_kwargs") or {})
        return _rendered(self.tokenizer, messages, options)

    def _get_examples(self) -> Sequence[str]:
        """Return the prompt's worked examples."""
        return ()

    def _extract_ground_truth(self, row_dict: Mapping[str, Any]) -> Any:
        """Return a row's ground truth in the form that the reward function reads; a row with None is rejected."""
        return self.sample(row_dict).truth

    def _get_data_source(self, row_dict: Mapping[str, Any]) -> str:
        """Return the data source by which metrics are grouped."""
        return str(row_dict["data_source"])

    def _ordered(self, sample: DataSample, index: Any) -> DataSample:
        """Return the sample with its answers in the order in which the prompt shows them."""
        return sample

    def _check_prompt(self, messages: Messages) -> None:
        """Check the prompt of the first row.

        Raises:
            ConfigError: the chat template and the prompt both ask for thoughts, or an override renders a different
                prompt than the agent loop.
        """
        last = str(messages[-1]["content"]).rpartition("\n# ")[2]
        if self._chat_thinks and _ASKS.search(last):
            problem = "the chat template lets the model think, and the prompts ask for <think> too"
            remedy = "Build prompts with enable_thinking=False, or set the key to false"
            raise ConfigError(f"{_OPTIONS}.enable_thinking", problem, remedy)
        if self._apply_chat_template(messages) != BaseTrainDataset._apply_chat_template(self, messages):
            problem = f"_apply_chat_template of {type(self).__name__} renders a different prompt than the agent loop"
            raise ConfigError(_OPTIONS, problem, "Set its arguments in this key, such as enable_thinking: true")


class PointwiseTrainDataset(BaseTrainDataset):
    """Rows with one answer each; the ground truth is the answer's score."""

    template = PointwiseTemplate


class PairwiseTrainDataset(BaseTrainDataset):
    """Rows with two answers each, in an order derived from the row's `index`; the ground truth is the better answer."""

    template = PairwiseTemplate

    def _ordered(self, sample: DataSample, index: Any) -> DataSample:
        number = index if isinstance(index, int) else zlib.crc32(str(index).encode())
        return sample.swapped() if number % 2 else sample


def chat_thinks(tokenizer: Any, options: Mapping[str, Any]) -> bool:
    """Whether a chat template with these arguments lets the model think.

    Raises:
        ConfigError: `enable_thinking` is true, and the template neither reads this variable nor opens thoughts.
    """
    question: Messages = [{"role": "user", "content": "?"}]
    now, on, off = (
        _rendered(tokenizer, question, {**options, **more})
        for more in ({}, {"enable_thinking": True}, {"enable_thinking": False})
    )
    if on != off:
        return now == on
    if now.rstrip().endswith("<think>"):
        return True
    if options.get("enable_thinking"):
        problem = "the key is true, but the model's chat template does not read it"
        raise ConfigError(f"{_OPTIONS}.enable_thinking", problem, "Remove the key; the prompts then ask for thoughts")
    return False


def _rendered(tokenizer: Any, messages: Messages, options: Mapping[str, Any]) -> str:
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options))


def _prompt(example: dict[str, Any], key: str | None = None) -> Messages:
    messages: Messages = example[key or "prompt"]
    return messages
