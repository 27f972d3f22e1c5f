"""`RewardModule` writes the prompt about a sample, both in training and when the trained model is used as a judge.

    module = RewardModule(name="helpfulness", template=PointwiseTemplate, desc="Judge how helpful the answer is.")
    module.format(sample=DataSample(query="6 * 7?", answers=["42"]))

Any chat-template control tokens in the sample are broken up, so that an answer cannot end its message early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.rewards.judge.kinds import kind_of
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate

_THOUGHTS = "data.apply_chat_template_kwargs.enable_thinking"


class RewardModule:
    """Writes prompts about samples, and extracts the verdicts from the replies.

    Args:
        name: name of the reward, used in error messages.
        template: the prompt and the form of the verdict.
        examples: worked examples for the prompt; if empty, the template's examples are used.
        llm: must be None. The argument exists only to match the signature in other libraries' guides; `agent-rl rm
            eval` and a reward's components send the requests.
        desc: description of the task; None means the class's description, or else the template's.
        enable_thinking: whether prompts ask for thoughts; None means yes, unless the chat template already asks for
            them (`data.apply_chat_template_kwargs.enable_thinking=true`).

    Raises:
        ConfigError: the template has no field for a verdict, or `llm` is not None.
    """

    desc: str | None = None

    def __init__(
        self,
        name: str,
        template: type[BasePromptTemplate],
        examples: Sequence[str] = (),
        llm: None = None,
        desc: str | None = None,
        enable_thinking: bool | None = None,
    ) -> None:
        if llm is not None:
            raise ConfigError(f"reward module {name}", "llm is not supported: it would never be called", "Remove it")
        self.name, self.template, self.kind = name, template, kind_of(template)
        self.examples = list(examples or template.examples)
        self.desc = desc or self.desc or template.desc
        self.enable_thinking = enable_thinking

    def set_chat_thinking(self, on: bool) -> None:
        """Set whether the chat template asks the model to think; if it does, the prompts do not.

        Raises:
            ConfigError: both the chat template and `enable_thinking` ask for thoughts.
        """
        if on and self.enable_thinking:
            problem = f"it is true, but the prompts of {self.name} ask for thoughts as well (enable_thinking=True)"
            raise ConfigError(_THOUGHTS, problem, "Set only one of the two; for reasoning models, set this key")
        if self.enable_thinking is None:
            self.enable_thinking = not on

    def format(self, sample: DataSample | Mapping[str, Any], **more: Any) -> str:
        """Return the prompt about a sample, which may be passed on its own or in a row.

        Args:
            sample: the sample to judge, or a row that contains it.
            more: values for additional placeholders of the template; they override the values that this method sets.

        Raises:
            ConfigError: the row has no sample, or the number of answers does not match the template.
        """
        sample = sample if isinstance(sample, DataSample) else DataSample.from_row(sample)
        number = 2 if self.kind == "pairwise" else 1
        if (count := len(sample.answers)) != number:
            problem = f"the number of answers must be {number} for {self.template.__name__}, but it is {count}"
            raise ConfigError(f"reward module {self.name}", problem, "Choose a template for that number of answers")
        values = {"desc": self.desc, "examples": "\n\n".join(self.examples), "context": sample.context,
                  "criteria": sample.criteria, "enable_thinking": self.enable_thinking is not False}  # fmt: skip
        return self.template.ask(sample.query, sample.answers, **values | more)

    def parse(self, reply: str, sample: DataSample | None = None) -> BasePromptTemplate:
        """Extract the verdict from a reply about a sample.

        Raises:
            VerdictError: the reply has no verdict.
        """
        return self.template.read(reply, "\n".join(sample.answers) if sample else "")
