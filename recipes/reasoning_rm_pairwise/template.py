"""The verdict on two answers: which of the two is better."""

from typing import ClassVar, Literal

from pydantic import Field

from agent_rl.reasoning_rm import PairwiseTemplate


class ComparisonTemplate(PairwiseTemplate):
    """Uses the prompt of `PairwiseTemplate.format`; override this method to write your own prompt."""

    desc: ClassVar[str] = "Choose the response that serves the query better."

    preference: Literal["A", "B", "tie"] = Field(description="which response is better: A, B, or tie")
