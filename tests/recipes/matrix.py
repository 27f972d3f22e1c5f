"""What the recipes can be told in one line, and how a run shows that it did it.

An entry is one run of two steps in `make test-recipes`; a new group of the package gets its entries here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

ALGORITHMS = [f"algo={name}" for name in ("grpo", "ppo", "rloo", "remax", "reinforce_plus_plus", "dapo", "gspo")]
ALGORITHMS += [f"algo={name}" for name in ("turn", "gigpo", "maxrl", "dr_grpo", "cispo", "sapo", "grpo_passk", "gdpo")]
CORRECTIONS = [f"correction={name}" for name in ("none", "tis", "mis", "geo", "icepop")]
KL = ["kl=none", "kl=loss", "kl=reward"]

Metrics = Mapping[str, float]
Evidence = Callable[[Metrics, Metrics], bool]
"""Of the metrics of the first and of the second step."""


@dataclass(frozen=True)
class Entry:
    """One run: the recipe, what it is told, and what its metrics must show."""

    overrides: list[str]
    evidence: Evidence
    recipe: str = "gsm8k_calculator"
    script: str | None = None
    """A training script beside this file, instead of verl's."""
    agent: str = "react_agent"
    tokens: int = 512
    """Limit of a response. An untrained model ends every second answer of 350 tokens, and few of 128."""
    varied: bool = True
    """Whether any two samples that differ get rewards that differ: what replaces groups of equal rewards needs some."""
    difference: float = 1e-5
    """Limit of the engine's mean difference in probability from the trainer; more where their weights differ."""


def grpo(first: Metrics, second: Metrics) -> bool:
    """The advantages of two samples that differ are one standard deviation apart, whatever the rewards."""
    return all(abs(step["critic/advantages/max"] - 0.5**0.5) < 1e-3 for step in (first, second))


def ppo(first: Metrics, second: Metrics) -> bool:
    """The critic is trained and its values move."""
    trained = all(step["critic/vf_loss"] > 0 and step["critic/grad_norm"] > 0 for step in (first, second))
    return trained and first["critic/values/mean"] != second["critic/values/mean"]


def rloo(first: Metrics, second: Metrics) -> bool:
    """The advantage of one of two samples is how much more reward it got, and the other's the opposite."""
    steps = (first, second)
    differences = [step["critic/score/max"] - step["critic/score/min"] for step in steps]
    return not grpo(first, second) and all(
        0 < step["critic/advantages/max"] <= most + 1e-5 and opposite(step)
        for step, most in zip(steps, differences, strict=True)
    )


def opposite(step: Metrics) -> bool:
    """Whether the largest advantage and the smallest cancel."""
    return abs(step["critic/advantages/max"] + step["critic/advantages/min"]) < 1e-5


def remax(first: Metrics, second: Metrics) -> bool:
    """Each prompt has its greedy reward, and advantages are rewards above it."""
    return all(
        step["agent/without_baseline"] == 0
        and -2 <= step["agent/greedy_reward"] <= 1
        and abs(step["critic/advantages/mean"]) < 2
        for step in (first, second)
    )


def remax_unlucky(first: Metrics, second: Metrics) -> bool:
    """Each greedy episode that failed is counted, and its prompt is left out: it has no baseline, not one of 0."""
    steps = (first, second)
    counted = all(step["agent/without_baseline"] == step["agent/unscored"] for step in steps)
    return counted and sum(step["agent/unscored"] for step in steps) > 0


def reinforce_plus_plus(first: Metrics, second: Metrics) -> bool:
    """Advantages are centred over the batch, returns are the rewards."""
    return all(
        abs(step["critic/advantages/mean"]) < 1e-4 and abs(step["critic/returns/max"] - step["critic/score/max"]) < 1e-5
        for step in (first, second)
    )


def dapo(first: Metrics, second: Metrics) -> bool:
    """Groups were replaced, and long episodes lost reward."""
    replaced = [step.get("training/filter_groups/evicted_samples", 0) for step in (first, second)]
    return sum(replaced) > 0 and first["agent/overlong"] < 0 and grpo(first, second)


def gspo(first: Metrics, second: Metrics) -> bool:
    """Its clip range of 0.0003 is left at once; there is no second, lower clip."""
    steps = (first, second)
    return any(step["actor/pg_clipfrac"] > 0.1 for step in steps) and not any(
        step["actor/pg_clipfrac_lower"] for step in steps
    )


def turn(first: Metrics, second: Metrics) -> bool:
    """Both samples of a prompt are alive in the first turn, where their advantages cancel; nothing is scaled."""
    steps = (first, second)
    return not grpo(first, second) and all(step["critic/advantages/max"] > 0 for step in steps)


def gigpo(first: Metrics, second: Metrics) -> bool:
    """Both samples start in the same state, whose advantage is added to theirs; later states differ."""
    root = 0.5**0.5
    return all(
        step["critic/advantages/max"] > root + 1e-3 and 0 <= step["agent/lone_states"] < 1 for step in (first, second)
    )


def maxrl(first: Metrics, second: Metrics) -> bool:
    """Two samples' differences from their mean are at most as large as the mean, and cancel."""
    return all(0 < step["critic/advantages/max"] <= 1 + 1e-5 and opposite(step) for step in (first, second))


def dr_grpo(first: Metrics, second: Metrics) -> bool:
    """The advantage of one of two samples is at most half of the largest difference in reward, and the other's the
    opposite: nothing is divided by a standard deviation."""
    steps = (first, second)
    differences = [step["critic/score/max"] - step["critic/score/min"] for step in steps]
    return not grpo(first, second) and all(
        step["critic/advantages/max"] <= most / 2 + 1e-5 and opposite(step)
        for step, most in zip(steps, differences, strict=True)
    )


def unclipped(first: Metrics, second: Metrics) -> bool:
    """GRPO's advantages; no token loses its gradient to a clip."""
    return grpo(first, second) and not any(step["actor/pg_clipfrac_lower"] for step in (first, second))


def passk(first: Metrics, second: Metrics) -> bool:
    """Only the better of two samples has an advantage."""
    return all(step["critic/advantages/max"] > 0 == step["critic/advantages/min"] for step in (first, second))


def whitened(first: Metrics, second: Metrics) -> bool:
    """The samples' advantages have mean 0 and standard deviation 1 over the tokens."""
    return not grpo(first, second) and all(abs(step["critic/advantages/mean"]) < 0.05 for step in (first, second))


def by_token(first: Metrics, second: Metrics) -> bool:
    """The baseline differs by token, so the advantages of two samples do not cancel."""
    return not opposite(first) and all(step["critic/advantages/max"] > 0 for step in (first, second))


def weighted(first: Metrics, second: Metrics) -> bool:
    """The weights of tokens are close to 1, since engine and trainer agree."""
    return all(abs(step["rollout_corr/rollout_is_mean"] - 1) < 1e-3 for step in (first, second))


def rejecting(first: Metrics, second: Metrics) -> bool:
    """The ratios of whole sequences are in their bounds, since engine and trainer agree."""
    return all(step["rollout_corr/rollout_rs_masked_fraction"] == 0 for step in (first, second))


def kl_none(first: Metrics, second: Metrics) -> bool:
    """No reference policy ran."""
    return not any(key.startswith(("actor/kl_loss", "actor/reward_kl", "timing_s/ref")) for key in {**first, **second})


def kl_loss(first: Metrics, second: Metrics) -> bool:
    """The policy's distance from the reference grows from nothing and weighs in the loss."""
    return second["actor/kl_loss"] > 0 and second["actor/kl_coef"] == 0.001 and "actor/reward_kl_penalty" not in second


def kl_reward(first: Metrics, second: Metrics) -> bool:
    """It is taken off the reward: none in the first step, where the policy is the reference."""
    taken = [abs(step["actor/reward_kl_penalty"]) for step in (first, second)]
    changed = second["critic/rewards/mean"] != second["critic/score/mean"]
    return taken[0] < 1e-5 < taken[1] and changed and "actor/kl_loss" not in second


def both(*evidence: Evidence) -> Evidence:
    """All of them."""
    return lambda first, second: all(each(first, second) for each in evidence)


ENTRIES = {
    "grpo": Entry(["algo=grpo", "kl=loss"], both(grpo, kl_loss)),
    "ppo": Entry(["algo=ppo", "kl=loss"], both(ppo, kl_loss)),
    "rloo": Entry(["algo=rloo", "kl=none"], both(rloo, kl_none)),
    "remax": Entry(["algo=remax", "kl=none"], both(remax, kl_none)),
    "reinforce_plus_plus": Entry(["algo=reinforce_plus_plus", "kl=none"], both(reinforce_plus_plus, kl_none)),
    "dapo": Entry(["algo=dapo", "kl=none"], both(dapo, kl_none), tokens=128, varied=False),
    "gspo": Entry(["algo=gspo", "kl=none"], both(gspo, kl_none)),
    "turn": Entry(["algo=turn", "kl=none"], both(turn, kl_none)),
    "gigpo": Entry(["algo=gigpo", "kl=none"], both(gigpo, kl_none)),
    "lora_turn": Entry(["algo=turn", "kl=reward", "mode=colocate_async", "tuning=lora"], kl_reward, difference=1e-3),
    "maxrl": Entry(
        [
            *("algo=maxrl", "kl=none", "correction=icepop"),
            *("agent_rl.reward.overlong.penalty=0", "agent_rl.reward.format.weight=0"),  # no reward is negative
        ],
        both(maxrl, kl_none, weighted),
    ),
    "dr_grpo": Entry(["algo=dr_grpo", "kl=none", "correction=tis"], both(dr_grpo, kl_none, weighted)),
    "cispo": Entry(["algo=cispo", "kl=none", "correction=mis"], both(unclipped, kl_none, weighted, rejecting)),
    "sapo": Entry(["algo=sapo", "kl=none", "correction=geo"], both(unclipped, kl_none, rejecting)),
    "grpo_passk": Entry(["algo=grpo_passk", "kl=none", "correction=none"], both(passk, kl_none)),
    "gdpo": Entry(["algo=gdpo", "kl=none"], both(whitened, kl_none)),
    "optimal_token": Entry(["algorithm.adv_estimator=optimal_token_baseline", "kl=none"], both(by_token, kl_none)),
    "kl_reward": Entry(["algo=rloo", "kl=reward"], kl_reward),
    "lora_ppo": Entry(["algo=ppo", "kl=reward", "tuning=lora"], both(ppo, kl_reward)),
    "lora_colocate_async": Entry(["mode=colocate_async", "kl=loss", "tuning=lora"], kl_loss, difference=1e-3),
    "lora_separate_async": Entry(
        [
            "mode=separate_async",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",  # the whole batch, which this mode asks for
            "actor_rollout_ref.actor.ppo_epochs=2",
            "algo=ppo",
            "kl=none",
            "tuning=lora",
        ],
        both(ppo, kl_none),
        difference=1e-3,
    ),
    "quickstart_ppo": Entry(["algo=ppo", "kl=reward"], both(ppo, kl_reward), "quickstart"),
    "quickstart_remax_unlucky": Entry(
        ["algo=remax", "kl=loss"], both(remax_unlucky, kl_loss), "quickstart", "unlucky_train.py", "unlucky"
    ),
    "quickstart_dapo": Entry(["algo=dapo"], both(dapo, kl_none), "quickstart", tokens=128, varied=False),
}
"""Name to run. What needs more than metrics to be believed (LoRA's weights, the asynchronous modes) is in tests/e2e."""
