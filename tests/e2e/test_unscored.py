"""One of eight samples is unscored: the other seven are trained on as a group of seven would be, exactly.

The same seven answers to one prompt, once beside an eighth that a judge is away for, once alone. Compared are what
verl's estimators make of the batch, and the weights after its real update.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import write_parquet
from agent_rl.trajectory import trace
from tests.e2e.estimators_probe import ESTIMATORS
from tests.e2e.training import train
from tests.support.rows import sum_row

AWAY = 7
EIGHT = (3, 0, 6, 1, AWAY, 2, 5, 4)
SEVEN = tuple(answer for answer in EIGHT if answer != AWAY)

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.usefixtures("run_processes")]


def run(
    folder: Path, model: Path, answers: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> dict[int, dict[str, Any]]:
    """One step with one prompt, whose samples give these answers."""
    folder.mkdir()
    monkeypatch.setenv("PROBE_DIR", str(folder))
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "tests.e2e.estimators_probe")
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(__file__).parents[2])
    )  # other distributions have a package `tests` as well
    told = sum_row(data_source="judged", agent_name="told", extra_info={"answers": list(answers)})
    for split in ("train", "test"):
        write_parquet([told], folder / f"{split}.parquet")
    return train(
        folder,
        model,
        script=Path(__file__).with_name("faults_train.py"),
        data__train_batch_size=1,
        actor_rollout_ref__rollout__n=len(answers),
        actor_rollout_ref__actor__ppo_mini_batch_size=1,
        actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=1,
        actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=1,  # seven has no other divisor
        actor_rollout_ref__actor__optim__optimizer="SGD",  # its step is the gradient
        actor_rollout_ref__actor__optim__lr=1.0,
        actor_rollout_ref__actor__optim__weight_decay=0,
        actor_rollout_ref__actor__optim__clip_grad=1000.0,
        reward__reward_manager__name="trajectory",
        reward__custom_reward_function__path="null",
        agent_rl__reward__correctness__scorer="none",
        agent_rl__reward__efficiency__gate="null",  # of the component that is not there
        agent_rl__reward__components__judge__kind=f"{Path(__file__).with_name('failing_judge.py')}:Judge",
        agent_rl__reward__components__judge__config__away=AWAY,
        agent_rl__trace__path=folder / "trace.jsonl",
        trainer__total_training_steps=1,
        trainer__save_freq=1,
    )


def advantages(folder: Path, answers: Sequence[int]) -> dict[str, dict[int, list[float]]]:
    """By estimator and answer; padding has none."""
    found = json.loads((folder / "estimators.json").read_text())
    return {
        name: {answers[int(key.split("_")[1])]: values for key, values in rows.items() if values}
        for name, rows in found.items()
    }


def gradient(trace_file: Path, model: Path) -> Any:
    """The gradient of the loss at the first weights, by autograd from the trace: tokens, masks and advantages.

    The loss is the mean over all sampled tokens of minus the advantage times the log-prob.
    """
    import torch
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows, total, tokens = trace.read_trained_rows(trace_file), torch.zeros(()), 0
    for each in trace.read(trace_file, tokens=True):
        for row in rows.get(each.id, []):
            sequence = each.info["tokens"]["sequences"][row.sequence]
            prompt, response = sequence["prompt_ids"], sequence["response_ids"]
            logits = policy(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
            log_probs = logits.log_softmax(-1)[range(len(response)), response]
            mask = torch.tensor(sequence["mask"])
            total, tokens = total - (row.advantage * log_probs * mask).sum(), tokens + int(mask.sum())
    (total / tokens).backward()
    return {name: each.grad for name, each in policy.named_parameters()}


def weights(path: Path) -> dict[str, Any]:
    import torch

    state = torch.load(path, weights_only=False, map_location="cpu")
    return {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in state.items()}


def test_an_unscored_sample_leaves_the_others_as_if_it_had_not_been(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import load_file

    eight, seven = tmp_path / "eight", tmp_path / "seven"
    logged = {
        folder.name: run(folder, tiny_llama, answers, monkeypatch)[1]
        for folder, answers in ((eight, EIGHT), (seven, SEVEN))
    }

    # The eighth is unscored, counted, and kept with its reason; it is no zero.
    assert (logged["eight"]["agent/unscored"], logged["seven"]["agent/unscored"]) == (1, 0)
    scores = {int(str(each.answer)): each.score for each in trace.read(eight / "trace.jsonl")}
    assert {answer for answer, score in scores.items() if score is None} == {AWAY}
    for metrics in logged.values():
        assert metrics["critic/score/mean"] == pytest.approx(3 / 8)

    # Every estimator gives the seven what it gives a group of seven, and nothing to the eighth.
    beside, alone = advantages(eight, EIGHT), advantages(seven, SEVEN)
    assert set(beside) == {*ESTIMATORS, "trained"}
    for name in beside:
        assert set(beside[name]) == set(alone[name]) == set(SEVEN), name
        for answer in SEVEN:
            assert beside[name][answer] == pytest.approx(alone[name][answer], abs=1e-6), (name, answer)
    assert beside["trained"] == beside["grpo"] == alone["grpo"]  # to the last bit: the rewards' mean is exact
    rewards = [answer / 8 for answer in SEVEN]
    for answer in SEVEN:
        expected = (answer / 8 - statistics.fmean(rewards)) / (statistics.stdev(rewards) + 1e-6)
        assert beside["grpo"][answer][0] == pytest.approx(expected, abs=1e-6)

    # The update is the same: the eighth has no gradient.
    start = load_file(tiny_llama / "model.safetensors")
    after = [
        weights(folder / "checkpoints/global_step_1/actor/model_world_size_1_rank_0.pt") for folder in (eight, seven)
    ]
    moved = torch.cat([(after[0][name] - start[name]).flatten() for name in start])
    apart = torch.cat([(after[0][name] - after[1][name]).flatten() for name in start])
    print(f"the update moves the weights by {moved.norm():.3g}, the two runs differ by {apart.norm():.3g}")
    assert moved.norm() > 1e-3
    exact = gradient(eight / "trace.jsonl", tiny_llama)
    error = torch.cat([(after[0][name] - start[name] + exact[name]).flatten() for name in start]).norm() / moved.norm()
    print(f"the update differs from minus the gradient by {error:.3g} of its length")
    assert error < 1e-4  # the learning rate is 1
    assert apart.norm() < 1e-5 * moved.norm()
