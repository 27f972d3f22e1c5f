"""What `run.py` trains: each case is the quickstart with a few overrides."""

from dataclasses import dataclass, field
from pathlib import Path

PROMPTS, SAMPLES, STEPS = 4, 3, 3
FLAKY = Path(__file__).parents[1] / "e2e/flaky.py"

CALL = 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "12+34"}'
LONG_CALL = f"Thought: {'I compute the next part of it with care. ' * 3}\n{CALL.partition(chr(10))[2]}"
CALLS = (CALL, LONG_CALL, CALL.replace("+", "/0+"))
TURNS = (
    *CALLS,
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


FEW = ("Final Answer: 7", "Thought: I have the result.\nFinal Answer: 7", "Final Answer: 46")
"""With which many groups are all right or all wrong."""
MORE_CALLS = (*TURNS, *CALLS * 2)
"""With which many a context of 224 tokens is full."""
FOLDING = ["agent_rl.folding.instructions=Write notes.", "agent_rl.folding.reserve_tokens=64"]
FOLDING += ["data.max_response_length=224"]
SERVED = [
    "+agent_rl.reward.models.preference={path: CLASSIFIER, kind: discriminative, placement: shared}",
    "+agent_rl.reward.components.quality={kind: reward_model, weight: 0.2, normalize: sigmoid, "
    "config: {models: {preference: {shown: conversation}}}}",
]
OWN_SERVER = [each.replace("shared", "own") for each in SERVED]
UNSCORED = [f"+agent_rl.reward.components.flaky={{kind: '{FLAKY}:Flaky', weight: 0}}"]
ONE_UPDATE = [f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}"]

CASES = {
    "sync_grpo": Case(["kl=loss"]),
    "sync_resume": Case(["algo=ppo", "trainer.save_freq=1"], stops=(2, STEPS)),
    "sync_ppo": Case(["algo=ppo", "kl=reward"]),
    "sync_remax": Case(["algo=remax"]),
    "sync_dapo": Case(["algo=dapo"], turns=FEW),
    "sync_lora": Case(["tuning=lora", "kl=loss", *ONE_UPDATE]),
    "sync_folding": Case(FOLDING, agent="folding_agent", turns=MORE_CALLS),
    "sync_folding_rloo": Case(["algo=rloo", *FOLDING], agent="folding_agent", turns=MORE_CALLS),
    "sync_served": Case(SERVED),
    "sync_order_unscored": Case(["algo=rloo", "agent_rl.data.order=shuffled", "data.seed=1", *UNSCORED]),
    "colocate_async_grpo": Case(["mode=colocate_async"]),
    "colocate_async_ppo_served": Case(["mode=colocate_async", "algo=ppo", *OWN_SERVER]),
    "colocate_async_resume": Case(["mode=colocate_async", "trainer.save_freq=1"], stops=(2, STEPS)),
    "separate_async_grpo": Case(["mode=separate_async"]),
    "separate_async_lora_folding": Case(
        ["mode=separate_async", "tuning=lora", *FOLDING], agent="folding_agent", turns=MORE_CALLS
    ),
}
