"""LLM judges: `Judge` scores each trajectory, `PairwiseJudge` compares those of one prompt; each is a component.

They must not know verl or torch, or how a request is sent (`agent_rl.remote`).
"""

from agent_rl.rewards.judge.judge import Judge, JudgeConfig
from agent_rl.rewards.judge.pairwise import PairwiseJudge, PairwiseJudgeConfig

__all__ = ["Judge", "JudgeConfig", "PairwiseJudge", "PairwiseJudgeConfig"]
