"""Components that use an LLM judge: `Judge` scores a trajectory, and `PairwiseJudge` compares several.

Code in this package must not depend on verl or torch, or on how a request is sent (`agent_rl.remote`).
"""

from agent_rl.rewards.judge.judge import Judge, JudgeConfig
from agent_rl.rewards.judge.pairwise import PairwiseJudge, PairwiseJudgeConfig

__all__ = ["Judge", "JudgeConfig", "PairwiseJudge", "PairwiseJudgeConfig"]
