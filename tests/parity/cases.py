"""What `run.py` trains: each case is the quickstart with a few overrides."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CASES", "PROMPTS", "SAMPLES", "STEPS", "Case"]

PROMPTS, SAMPLES, STEPS = 4, 3, 3

CALL = 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "12+34"}'
LONG_CALL = f"Thought: {'I compute the next part of it with care. ' * 3}\n{CALL.partition(chr(10))[2]}"
TURNS = (
    *(CALL, LONG_CALL, CALL.replace("+", "/0+")),
    *("Thought: I have the result.\nFinal Answer: 7", "Final Answer: 7", "Thought: So it is.\nFinal Answer: 46"),
    *("I do not know.", "Action: nothing\nAction Input: none"),
)


@dataclass(frozen=True)
class Case:
    """One run."""

    overrides: list[str] = field(default_factory=list)
    recipe: str = "quickstart"
    agent: str = "react_agent"
    turns: tuple[str, ...] = TURNS
    """Texts that the engine chooses from."""
    stops: tuple[int, ...] = (STEPS,)
    """Last steps of the command and of its repetitions, which resume."""

    @property
    def is_asynchronous(self) -> bool:
        return any("async" in override for override in self.overrides)


SERVED = ["+agent_rl.reward.models.preference={path: CLASSIFIER, kind: discriminative, placement: PLACEMENT}"]
SERVED += [
    "+agent_rl.reward.components.quality={kind: reward_model, weight: 0.2, normalize: sigmoid, "
    "config: {models: {preference: {shown: conversation}}}}"
]
CASES = {
    "sync_grpo": Case(),
    "sync_resume": Case(["algo=ppo", "trainer.save_freq=1"], stops=(2, STEPS)),
    "sync_ppo": Case(["algo=ppo", "kl=reward"]),
    "sync_remax": Case(["algo=remax"]),
    "sync_dapo": Case(["algo=dapo"]),
    "sync_lora": Case(["tuning=lora", "kl=loss"]),
    "sync_folding": Case(
        ["agent_rl.folding.reserve_tokens=48", "data.max_response_length=160"], agent="folding_agent"
    ),
    "sync_served": Case([each.replace("PLACEMENT", "shared") for each in SERVED]),
    "colocate_async_grpo": Case(["mode=colocate_async"]),
    "separate_async_grpo": Case(["mode=separate_async"]),
}
