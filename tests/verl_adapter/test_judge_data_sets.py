"""Data sets for training judges, among them classes as guides write them: only their imports are ours."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import Field

from agent_rl.data import write_parquet
from agent_rl.data.preferences import to_row
from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm import (
    BasePromptTemplate,
    BaseTrainDataset,
    PairwiseTrainDataset,
    PointwiseTrainDataset,
    RewardModule,
    compute_score,
)

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKS = CHATML.replace(
    "assistant\n{% endif",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif",
)
"""As Qwen3's: the model thinks unless it is told not to."""
OPENS = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
RATED = [
    {"prompt": f"{'long ' * (50 * n)}q{n}?", "response": f"answer {n}", "helpfulness": n % 5, "coherence": 4}
    for n in range(3)
]
PAIRS = [{"prompt": f"q{n}?", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(4)]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Any:
    """Makes a data set of a class over examples."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = tmp_path / "rows.parquet"

    def _make(
        cls: type[BaseTrainDataset], examples: list[dict[str, Any]], template: str = CHATML, **config: Any
    ) -> Any:
        write_parquet([to_row(each, "train", n, data_source="rm") for n, each in enumerate(examples)], file)
        monkeypatch.setattr(tokenizer, "chat_template", template)
        given = {"cache_dir": str(tmp_path / "verl"), "filter_overlong_prompts": False, **config}
        return cls([str(file)], tokenizer, OmegaConf.create(given))

    return _make


class HelpfulnessTemplate(BasePromptTemplate):
    score: int = Field(default=..., description="helpfulness score from 0 to 4")


class GuideReward(RewardModule):
    """The reward module that a guide leaves to its reader."""


class GuideTrainDataset(BaseTrainDataset):
    """As the guide on training reward models has it, in our words."""

    def __init__(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.reward_module = GuideReward(
            name="my_reward",
            template=HelpfulnessTemplate,
            examples=self._get_examples(),
            llm=None,
        )
        super().__init__(*args, **kwargs)

    def _get_examples(self):  # type: ignore[no-untyped-def]
        return ["Query: 1 + 1?\nAnswer: 3\nhelpfulness score: 0"]

    def _build_messages(self, example):  # type: ignore[no-untyped-def, override]
        result = self.reward_module.format(sample=example)
        return [{"role": "user", "content": result}]


class CompareTemplate(BasePromptTemplate):
    """A user's template with a format of its own, as guides write them."""

    think: str = Field(default=..., description="your reasoning", alias="think")
    preference: str | None = Field(default=None, description="the better response: A, B or tie")

    @classmethod
    def parse(cls, text):  # type: ignore[no-untyped-def, override]
        try:
            contents = cls._parse(text)
            contents["preference"] = contents.get("preference", "unknown").strip().upper()
            return cls(**contents)
        except Exception as e:
            raise ValueError(f"cannot be read: {e}") from e

    @classmethod
    def format(cls, desc, rubrics, examples, query, response_a, response_b, **kwargs):  # type: ignore[no-untyped-def, override]
        asked = f"# Task\n{desc}\n{rubrics}{examples}\n# Query\n{query}"
        return f"{asked}\n# A\n{response_a}\n# B\n{response_b}\n# Output\n{cls.schema(**kwargs)}"


class CompareDataset(PairwiseTrainDataset):
    template = CompareTemplate

    def _apply_chat_template(self, messages):  # type: ignore[no-untyped-def]
        return self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, enable_thinking=True
        )

    def _get_data_source(self, row_dict):  # type: ignore[no-untyped-def]
        return "compared"


def test_a_guides_class_asks_for_scores(make: Any) -> None:
    found = make(GuideTrainDataset, RATED)
    item = found[1]
    text = item["raw_prompt"][0]["content"]
    assert all(part in text for part in ("answer 1", "q1?", "helpfulness score: 0", "<score>", "<think>"))
    assert (item["reward_model"]["ground_truth"], item["index"], item["data_source"]) == ("1", 1, "rm")
    assert len(pickle.dumps(found)) > 0  # verl's workers get it so
    reply = "<think>Right.</think>\n<score>1</score>"
    scored = compute_score(
        "rm", reply, item["reward_model"]["ground_truth"], item["extra_info"], template=HelpfulnessTemplate
    )
    assert scored["score"] == 1


def test_a_pair_is_shown_in_both_orders_and_its_truth_goes_along(make: Any) -> None:
    found = make(CompareDataset, PAIRS, THINKS)
    for number in range(4):
        item = found[number]
        first, second = re.search(r"# A\n(\w+) \d\n# B\n(\w+) \d", item["raw_prompt"][0]["content"]).groups()
        assert {first, second} == {"good", "bad"}
        truth = item["reward_model"]["ground_truth"]
        assert {"A": first, "B": second}[truth] == "good"
        assert truth == "AB"[number % 2]
        assert item["data_source"] == "compared"
        reply = f"So.</think>\n<preference>{truth.lower()}</preference>"
        assert compute_score("c", reply, truth, item["extra_info"], template=CompareTemplate)["score"] == 1
        unsure = compute_score("c", "<preference>unknown</preference>", truth, template=CompareTemplate)
        assert (unsure["score"], unsure["parsed"]) == (0, 0)
    assert found[1] == found[1]


def test_long_prompts_are_left_out_as_they_are_asked(make: Any, tokenizer: Any) -> None:
    found = make(PointwiseTrainDataset, RATED)
    texts = [found._apply_chat_template(found[number]["raw_prompt"]) for number in range(3)]
    least, middle, _ = (len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    found = make(PointwiseTrainDataset, RATED, filter_overlong_prompts=True, max_prompt_length=middle)
    assert [found[number]["index"] for number in range(len(found))] == [0, 1]
    assert len(make(PointwiseTrainDataset, RATED, filter_overlong_prompts=True, max_prompt_length=least - 1)) == 0


ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}


@pytest.mark.parametrize(
    ("template", "options", "asks"),
    [(CHATML, {}, True), (CHATML, OFF, True), (THINKS, {}, False), (THINKS, ON, False), (THINKS, OFF, True),
     (OPENS, {}, False), (OPENS, ON, False)],
)  # fmt: skip
def test_thoughts_are_asked_for_once(make: Any, template: str, options: dict[str, bool], asks: bool) -> None:
    found = make(PointwiseTrainDataset, RATED[:1], template, apply_chat_template_kwargs=options)
    assert ("<think>" in found[0]["raw_prompt"][0]["content"]) is asks


class Twice(PointwiseTrainDataset):
    def _build_messages(self, example):  # type: ignore[no-untyped-def, override]
        prompt = self.template.format(query="q", answer="a", enable_thinking=True)
        return [{"role": "user", "content": prompt}]


class Both(PointwiseTrainDataset):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.reward_module = RewardModule("twice", self.template, enable_thinking=True)
        super().__init__(*args, **kwargs)


class Truthless(PointwiseTrainDataset):
    score = "beauty"


@pytest.mark.parametrize(
    ("cls", "examples", "template", "options", "message"),
    [
        (Twice, RATED, THINKS, {}, "the prompts ask for <think> too"),
        (Both, RATED, THINKS, ON, "the prompts of twice ask for thoughts as well"),
        (PointwiseTrainDataset, RATED, CHATML, ON, "the model's chat template does not read it"),
        (CompareDataset, PAIRS, THINKS, OFF, "_apply_chat_template of CompareDataset renders a different prompt"),
        (BaseTrainDataset, RATED, CHATML, {}, "neither a reward_module nor _build_messages"),
        (PointwiseTrainDataset, PAIRS, CHATML, {}, "must be 1 for PointwiseTemplate, but it is 2"),
        (Truthless, RATED, CHATML, {}, "rm, train row 0: the row has no ground truth for training a judge"),
    ],
)
def test_what_contradicts_itself_is_refused(
    make: Any, cls: Any, examples: Any, template: str, options: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(cls, examples, template, apply_chat_template_kwargs=options)[0]
