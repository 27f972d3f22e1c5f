"""`RewardModule`: asks about a sample with a prompt template; the prompt of training and of the judge afterwards.

    module = RewardModule(name="helpfulness", template=PointwiseTemplate, desc="Judge how helpful the answer is.")
    module.format(sample=DataSample(query="6 * 7?", answers=["42"]))

Texts of the sample are shown without control tokens of chat templates, so that an answer cannot end its message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.rewards.judge.kinds import kind_of
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate

__all__ = ["RewardModule"]

_THOUGHTS = "data.apply_chat_template_kwargs.enable_thinking"


class RewardModule:
    """Prompts about samples, and their verdicts.

    Args:
        name: of the reward.
        template: the prompt and the form of the verdict.
        examples: worked examples of the prompt; none: the template's.
        llm: only for the signature of guides: verdicts are asked for by `agent-rl rm eval` and by components.
        desc: the task; None: the template's.
        enable_thinking: whether prompts ask for thoughts; None: they do, until a data set says that the chat template
            does (`data.apply_chat_template_kwargs.enable_thinking=true`).

    Raises:
        ConfigError: the template has no field for a verdict, or `llm` is given.
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
            raise ConfigError(f"reward module {name}", "llm is given, and nothing calls it", "Leave it out")
        self.name, self.template, self.kind = name, template, kind_of(template)
        self.examples = list(examples or template.examples)
        self.desc = desc or self.desc or template.desc
        self.enable_thinking = enable_thinking

    def set_chat_thinking(self, on: bool) -> None:
        """Tell whether the chat template asks the model to think.

        Raises:
            ConfigError: so do these prompts.
        """
        if on and self.enable_thinking:
            problem = f"it is true, and the prompts of {self.name} ask for thoughts too (enable_thinking=True)"
            raise ConfigError(_THOUGHTS, problem, "Set one of them: reasoning models think by their chat template")
        if self.enable_thinking is None:
            self.enable_thinking = not on

    def format(self, sample: DataSample | Mapping[str, Any], **more: Any) -> str:
        """The prompt about a sample, or about the sample of a row.

        Args:
            sample: what is judged.
            more: further placeholders of the template, or other values of known ones.

        Raises:
            ConfigError: the row has no sample, or it has not as many answers as the template asks about.
        """
        found = sample if isinstance(sample, DataSample) else DataSample.from_row(sample)
        number = 2 if self.kind == "pairwise" else 1
        if len(found.answers) != number:
            problem = f"the sample has {len(found.answers)} answers, and {self.template.__name__} asks about {number}"
            raise ConfigError(f"reward module {self.name}", problem, "Take a template for so many answers")
        given = {"desc": self.desc, "examples": "\n\n".join(self.examples), "context": found.context,
                 "criteria": found.criteria, "enable_thinking": self.enable_thinking is not False}  # fmt: skip
        return self.template.ask(found.query, found.answers, **given | more)

    def parse(self, reply: str, sample: DataSample | None = None) -> BasePromptTemplate:
        """The verdict in a reply about a sample.

        Raises:
            VerdictError: the reply has no verdict.
        """
        return self.template.read(reply, "\n".join(sample.answers) if sample else "")
