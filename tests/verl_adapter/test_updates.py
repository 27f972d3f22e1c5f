"""Batches of any number of rows are filled up by as little as possible, and their weights are those without filling.

The log-probs of the update itself do for the old ones, and the pass that computes these is left out then.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.verl_adapter.updates import needs_log_probs
from tests.support.forks import python

ROOT = Path(__file__).parents[2]

TRAINER = """
import verl
from types import SimpleNamespace
from tests.verl_adapter.trainers import make

def trainer(prompts=16, mini=16, micro=None, critic=None, **parts):
    policy = "actor_rollout_ref"
    config = {"data.train_batch_size": prompts, f"{policy}.rollout.n": 4}
    for part, size in ((f"{policy}.actor", mini), ("critic", critic or mini)):
        config |= {f"{part}.ppo_mini_batch_size": size, f"{part}.use_dynamic_bsz": micro is None,
                   f"{part}.ppo_micro_batch_size_per_gpu": micro}
    for part in (f"{policy}.rollout", f"{policy}.ref"):
        config |= {f"{part}.log_prob_use_dynamic_bsz": micro is None,
                   f"{part}.log_prob_micro_batch_size_per_gpu": micro}
    return make(config=config, use_critic=critic is not None, global_steps=1, **parts)

def multiple(gpus, **sizes):
    return trainer(**sizes)._get_required_batch_multiple(gpus)

def told(rows, filled, **sizes):
    given = {}
    class Stop(Exception): pass
    def update(batch):
        given.update(batch.extra_info)
        raise Stop
    tags = [{"is_padding": i >= rows} for i in range(rows + filled)]
    group = SimpleNamespace(update_actor=update)
    made = trainer(actor_rollout_wg=group, **sizes)
    try: made._update_actor(SimpleNamespace(keys=range(rows + filled), tags=tags, extra_info={}), {})
    except Stop: pass
    assert made.actor_rollout_wg is group
    return [given.get(key) for key in ("mini_batch_size", "num_mini_batch", "global_batch_size")]
"""


def test_rows_are_filled_up_to_what_the_gpus_and_mini_batches_divide() -> None:
    code = """
found = [multiple(8), multiple(8, mini=8), multiple(8, mini=5), multiple(8, mini=8, critic=6),
         multiple(2, micro=8), multiple(2, mini=8, micro=8)]
print(found)
"""
    assert python(TRAINER + code) == "[8, 16, 32, 48, 16, 32]"
    assert python(TRAINER + code, plugins="none").startswith("[64, 32,")  # verl: until whole mini-batches are full


def test_workers_are_told_the_number_of_mini_batches_none_of_which_is_filling_alone() -> None:
    code = "print(told(64, 0), told(65, 7), told(70, 2, mini=8), told(60, 4), told(2, 6, mini=8), told(5, 3, mini=8))"
    varied = "[None, 1, 65.0] [None, 2, 35.0] [None, 1, 60.0] [None, 1, 2.0] [None, 2, 2.5]"
    assert python(TRAINER + code) == f"[None, 1, 64.0] {varied}"


def test_a_loss_that_sums_tokens_has_the_divisor_of_a_batch_without_failures_and_folds() -> None:
    code = """
found = []
for mode in ("seq-mean-token-sum-norm", "seq-mean-token-sum", "seq-mean-token-mean"):
    configuration().actor_rollout_ref.actor.loss_agg_mode = mode
    found.append([told(rows, filled, mini=8)[1:] for rows, filled in ((64, 0), (60, 4), (70, 2), (2, 6))])
print(*found)
"""
    constant = "[[2, 32.0], [2, 32.0], [2, 32.0], [1, 64.0]]"
    by_rows = "[[2, 32.0], [2, 30.0], [2, 35.0], [1, 2.0]]"
    trainer = TRAINER.replace("import make", "import configuration, make")
    assert python(trainer + code) == f"{constant} {constant} {by_rows}"


LENGTHS = [(3, 9), (5, 2), (4, 17), (7, 6), (2, 30)]
"""Tokens of prompt and response of each row."""
AGGREGATES = ("token-mean", "seq-mean-token-mean")


def updated(folder: Path, ranks: int, cases: list[dict[str, Any]]) -> list[list[float]]:
    """The weights after one update of a policy by so many data-parallel ranks, of each case."""
    out = folder / f"{ranks}.json"
    given = json.dumps({"model": str(folder / "model"), "lengths": LENGTHS, "out": str(out), "cases": cases})
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command = [*launcher, str(Path(__file__).with_name("rank_update.py")), given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[float]] = json.loads(out.read_text())
    return found


def farthest(one: list[float], other: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(one, other, strict=True))


@pytest.mark.recipes
def test_two_ranks_with_filling_reach_the_weights_of_one_without(tmp_path: Path) -> None:
    """Five rows: one rank updates with them alone, two with a sixth that only fills up. verl's way is another one."""
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    tokenizer = make_tokenizer(CORPUS, tmp_path / "model", 300)
    make_model(tmp_path / "model", tokenizer, hidden=16, layers=1, heads=2, max_positions=256)
    unfilled = [{"aggregate": each, "filled": 5, "mini_batches": 1} for each in AGGREGATES]
    *alone, start = updated(tmp_path, 1, [*unfilled, {**unfilled[0], "lr": 0.0}])
    ours = [{"aggregate": each, "filled": 6, "mini_batches": 1} for each in AGGREGATES]
    verls = {"aggregate": AGGREGATES[0], "filled": 8, "mini_batch_size": 4}  # of 4 prompts with one sample each
    *filled, other = updated(tmp_path, 2, [*ours, verls])
    for one, two in zip(alone, filled, strict=True):
        assert farthest(one, two) < 2e-5
        assert farthest(one, start) > 5e-4  # the learning rate is 1e-3
    assert farthest(alone[0], other) > 1e-4


LOSS = """
import verl, torch
from verl.utils import tensordict_utils as tu
from verl.workers import engine_workers
from verl.workers.config import ActorConfig, PolicyLossConfig

torch.manual_seed(0)
PROMPTS, RESPONSES = [3, 2, 4], [5, 1, 3]

def nested(lengths, make):
    return torch.nested.as_nested_tensor([make(length) for length in lengths], layout=torch.jagged)

whole = [p + r for p, r in zip(PROMPTS, RESPONSES)]
parameters = torch.randn(sum(whole), requires_grad=True)
masks = nested(RESPONSES, lambda length: torch.arange(length) != 2)
fields = {
    "prompts": nested(PROMPTS, lambda length: torch.zeros(length, dtype=torch.long)),
    "responses": nested(RESPONSES, lambda length: torch.zeros(length, dtype=torch.long)),
    "response_mask": masks,
    "advantages": nested(RESPONSES, lambda length: torch.randn(1).expand(length)),
    "rollout_log_probs": nested(RESPONSES, lambda length: -torch.rand(length)),
}
numbers = {"dp_size": 1, "batch_num_tokens": int(masks.values().sum()), "global_batch_size": 3}

def loss(given, **settings):
    log_probs = torch.nested.nested_tensor_from_jagged(-parameters.exp(), torch.tensor([0, *whole]).cumsum(0))
    config = ActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, **settings)
    data = tu.get_tensordict(dict(fields), numbers)
    if given:
        from verl.workers.utils.padding import response_from_nested
        data["old_log_probs"] = response_from_nested(log_probs.detach(), masks)
    value, metrics = engine_workers.ppo_loss(config=config, model_output={"log_probs": log_probs}, data=data)
    return value, torch.autograd.grad(value, parameters)[0], metrics, log_probs
"""


def test_losses_and_gradients_equal_those_with_log_probs_from_before_the_update() -> None:
    code = """
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
tried = []
for mode in sorted(set(POLICY_LOSS_REGISTRY) - {"bypass_mode"}):  # which reads the engine's
    for aggregate in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        settings = {"policy_loss": PolicyLossConfig(loss_mode=mode, dro_beta=0.1), "loss_agg_mode": aggregate}
        one, other = (loss(given, **settings) for given in (True, False))
        torch.testing.assert_close(one[0], other[0], rtol=0, atol=0)
        torch.testing.assert_close(one[1], other[1], rtol=0, atol=0)
        assert other[1].abs().sum() > 0, mode
    tried.append(mode)
assert {"vanilla", "gspo", "cispo"} <= set(tried), tried
value, _, metrics, log_probs = loss(False)
rows = [row[-n - 1 : -1].exp() for row, n in zip(log_probs.unbind(), RESPONSES)]
diffs = torch.cat([(row - engine.exp()).abs() for row, engine in zip(rows, fields["rollout_log_probs"].unbind())])
diffs = diffs[masks.values()]
found = [metrics[f"training/rollout_probs_diff_{name}"].aggregate() for name in ("mean", "max")]
torch.testing.assert_close(torch.tensor(found).float(), torch.stack([diffs.mean(), diffs.max()]).detach())
print(len(tried) > 8, "training/rollout_probs_diff_mean" in loss(True)[2])
"""
    assert python(LOSS + code) == "True False"


def test_verls_own_loss_would_need_old_log_probs() -> None:
    assert python(LOSS + "\ntry: loss(False)\nexcept KeyError: print('needed')", plugins="none") == "needed"


def needs(sync_step: int = 1, **changed: Any) -> bool:
    """Whether a run needs the pass."""
    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 16},
            "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 16, "ppo_epochs": 1, "strategy": "fsdp2"}},
            "algorithm": {
                "adv_estimator": "grpo",
                "use_kl_in_reward": False,
                "rollout_correction": {"rollout_is": None, "rollout_rs": None, "bypass_mode": False},
            },
            "distillation": {"enabled": False},
        }
    )
    for key, value in changed.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return needs_log_probs(SimpleNamespace(config=config, parameter_sync_step=sync_step))


@pytest.mark.parametrize(
    "changed",
    [
        {"actor_rollout_ref__actor__ppo_mini_batch_size": 8},
        {"actor_rollout_ref__actor__ppo_epochs": 2},
        {"algorithm__rollout_correction__rollout_is": "token"},
        {"algorithm__rollout_correction__bypass_mode": True},
        {"algorithm__use_kl_in_reward": True},
        {"algorithm__adv_estimator": "optimal_token_baseline"},
        {"actor_rollout_ref__actor__strategy": "megatron"},
        {"distillation__enabled": True},
        {"sync_step": 2},
    ],
)
def test_what_reads_the_log_probs_gets_them(changed: dict[str, Any]) -> None:
    assert needs(**changed)
    assert not needs()
    assert not needs(actor_rollout_ref__actor__ppo_mini_batch_size=20)


STEPS = """
import verl
from types import SimpleNamespace
from tests.verl_adapter.trainers import make

def run(steps, every, **changed):
    passes = []
    class Stop(Exception): pass
    def compute(batch):
        passes.append(trainer.global_steps)
        raise Stop
    sizes = {"data.train_batch_size": 4, "actor_rollout_ref.actor.ppo_mini_batch_size": 4}
    config = {**sizes, "agent_rl.run.log_probs_every": every, **changed}
    trainer = make(config=config, actor_rollout_wg=SimpleNamespace(compute_log_prob=compute))
    for trainer.global_steps in range(1, steps + 1):
        try: trainer._compute_old_log_prob(SimpleNamespace(extra_info={}), {})
        except Stop: pass
    return passes
"""


def test_the_pass_runs_in_the_first_step_and_every_so_many_and_would_in_each_with_verl() -> None:
    code = "print(run(9, 4), run(3, 1), run(3, 4, **{'algorithm.use_kl_in_reward': True}))"
    assert python(STEPS + code) == "[1, 5, 9] [1, 2, 3] [1, 2, 3]"
    assert python(STEPS + "print(run(3, 4))", plugins="none") == "[1, 2, 3]"


BALANCE = """
import random, verl
from types import SimpleNamespace
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from agent_rl.verl_adapter import updates
from tests.verl_adapter.trainers import make

made = make(
    actor_rollout_wg=SimpleNamespace(_dispatch_info={"actor": [0, 1, 2, 3]}),
    tokenizer=SimpleNamespace(eos_token_id=0),
)
made._get_required_batch_multiple = lambda gpus: gpus

def balanced(balance):
    drawn, metrics = random.Random(0), {}
    tags = [{"seq_len": drawn.randint(10, 9999)} for _ in range(32)]
    batch = KVBatchMeta(partition_id="train", keys=[f"u_{at}_0" for at in range(32)], tags=tags)
    return balance(made, batch, metrics).keys, metrics

ours = balanced(lambda *args: updates.balance(*args, "global_seqlen"))
print(ours == balanced(PPOTrainer._balance_batch), ours[0] != sorted(ours[0]), len(ours[1]))
"""


def test_a_batch_is_balanced_as_by_verl() -> None:
    assert python(BALANCE) == "True True 6"
