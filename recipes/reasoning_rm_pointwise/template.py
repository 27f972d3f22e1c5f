"""The verdict on one answer: a score for its helpfulness."""

from typing import ClassVar

from pydantic import Field

from agent_rl.reasoning_rm import BasePromptTemplate


class HelpfulnessTemplate(BasePromptTemplate):
    """HelpSteer2's scale, with the prompt of `BasePromptTemplate.format`; override this method to change the prompt."""

    desc: ClassVar[str] = "Judge how helpful the answer is."

    score: int = Field(description="helpfulness from 0 to 4", ge=0, le=4)
