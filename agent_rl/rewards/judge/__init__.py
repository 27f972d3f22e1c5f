"""LLM judges: a model behind an OpenAI-compatible endpoint gives a verdict on trajectories.

`Judge` scores each by itself, `PairwiseJudge` compares those of one prompt. Neither needs verl or torch.
"""

from agent_rl.rewards.judge.judge import Judge, JudgeConfig
from agent_rl.rewards.judge.pairwise import PairwiseJudge, PairwiseJudgeConfig

__all__ = ["Judge", "JudgeConfig", "PairwiseJudge", "PairwiseJudgeConfig"]
