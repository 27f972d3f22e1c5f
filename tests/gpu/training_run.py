"""A short training run of a piece: `python -m tests.gpu.training_run OUT NAME RECIPE key=value ...` prints JSON.

The model has some million parameters and is made on the spot, so a run says whether the loop works on this machine and
whether trainer and engine agree after each move of the weights; it says nothing about the speed of a model of real
size. Two pieces have the shape of one, and random weights; svamp_calculator brings a real one.
`AGENT_RL_GPU_OVERRIDES` has overrides for every run.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from agent_rl.cpu import switch as cpu
from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch import training

SHOWN = {
    "timing_s/step": "step s",
    "timing_s/gen": "generation s",
    "timing_s/old_log_prob": "log-probs s",
    "timing_s/update_actor": "update s",
    "timing_s/update_weights": "weights s",
    "perf/throughput": "tokens/s of a GPU",
    "actor/perf/max_memory_allocated_gb": "GiB",
    "actor/grad_norm": "grad norm",
}
"""The median over the steps after the first, which has the warm-up in it."""
DIFF, CORRELATION = "training/rollout_probs_diff_mean", "training/rollout_actor_probs_pearson_corr"
OF_A_GPU = ("tokens/s of a GPU", "GiB")
SHAPES = {
    "model": (512, 2, 4, 2, 1024, None, 0.085),
    "1.5b": (1536, 28, 12, 2, 8960, 151_936, 0.02),
    "3b": (2048, 36, 16, 2, 11_008, 151_936, 0.02),
}
"""Width, layers, heads, key heads, width of the MLP, vocabulary (None: the tokenizer's), deviation of the weights.

Heads are of 128, several for each key head, as in Qwen2.5. Weights of the first are large enough that it prefers some
tokens: among 512 equally likely ones no difference would show."""
STALE = ("mode=colocate_async", "mode=separate_async")


def main(out: Path, name: str, recipe: str, *given: str) -> None:
    """Make what the run needs, train, check, print."""
    folder = out / "runs" / name
    more = os.environ.get("AGENT_RL_GPU_OVERRIDES", "").split()
    for shape in SHAPES:
        if f"actor_rollout_ref.model.path={out}/{shape}" in given:
            make_model(out, shape)
    arguments = [*settings(out, folder, recipe), *given, *more]
    if name == "resume":
        training.train(recipe, [*arguments, "trainer.total_training_steps=2"])
    training.train(recipe, arguments)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = {line["step"]: line["data"] for line in lines if "training/global_step" in line["data"]}
    stale = any(word in STALE for word in given)
    check(steps, stale)
    print("\n" + json.dumps(figures(steps, of_a_gpu=not (stale or cpu.is_selected()))))


def settings(out: Path, folder: Path, recipe: str) -> list[str]:
    """What every run is told; makes model, classifier and rows once."""
    values: dict[str, Any] = {
        "trainer.total_training_steps": 3,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.logger": "[console]",
        "agent_rl.run.folder": folder,
        "agent_rl.run.progress": "lines",
    }
    if recipe != "svamp_calculator":
        make_inputs(out)
        values |= {
            "data.train_files": f"{out}/rows.parquet",
            "data.val_files": f"{out}/rows.parquet",
            "data.train_batch_size": 8,
            "data.max_response_length": 256,
            "trainer.n_gpus_per_node": 1,
            "actor_rollout_ref.model.path": f"{out}/model",
            "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
            "actor_rollout_ref.actor.optim.lr": 0.001,
            # an untrained model earns the same reward everywhere; the entropy gives its weights a reason to move
            "actor_rollout_ref.actor.entropy_coeff": 0.01,
            "actor_rollout_ref.rollout.n": 4,
        }
        if cpu.is_selected():
            sizes = ("actor.ppo_micro_batch_size_per_gpu", "rollout.log_prob_micro_batch_size_per_gpu")
            values |= {f"actor_rollout_ref.{key}": 8 for key in sizes}
        else:
            values |= {
                "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 4096,
                "actor_rollout_ref.rollout.gpu_memory_utilization": 0.3,
                "actor_rollout_ref.rollout.max_num_seqs": 32,
                "++actor_rollout_ref.rollout.engine_kwargs.sglang.cuda_graph_max_bs": 16,  # a start within seconds
                "++ray_kwargs.ray_init.include_dashboard": False,
            }
    return [f"{key}={value}" for key, value in values.items()]


def check(steps: dict[int, dict[str, Any]], stale: bool) -> None:
    """Every step ran and moved the weights, and the engine sampled from the weights that the trainer then had.

    bf16 keeps 8 bits of a number, and engine and trainer add up differently. Computed in PyTorch for this model: bf16
    and fp32 differ by 0.0014 (correlation 0.999), weights one update apart by 0.016 and more (below 0.5).

    Raises:
        SystemExit: with what is wrong.
    """
    wrong = [] if sorted(steps) == list(range(1, len(steps) + 1)) and len(steps) > 1 else [f"steps {sorted(steps)}"]
    for step, metrics in steps.items():
        if metrics["agent/unscored"]:
            wrong.append(f"step {step}: {metrics['agent/unscored']} trajectories failed")
        if not metrics["actor/grad_norm"] > 0 or not math.isfinite(metrics["actor/pg_loss"]):
            wrong.append(f"step {step}: loss {metrics['actor/pg_loss']}, gradient {metrics['actor/grad_norm']}")
        if not stale and (metrics[DIFF] > 1e-2 or metrics.get(CORRELATION, 1.0) < 0.98):
            wrong.append(f"step {step}: {DIFF} {metrics[DIFF]}, correlation {metrics.get(CORRELATION)}")
    if wrong:
        raise SystemExit("; ".join(wrong))


def figures(steps: dict[int, dict[str, Any]], of_a_gpu: bool = True) -> dict[str, Any]:
    """What the report shows; rates and memory mean nothing on a CPU, nor tokens where a step does not wait for them."""
    later = [metrics for step, metrics in sorted(steps.items()) if step > 1]
    found: dict[str, Any] = {"steps": len(steps), "first step s": steps[1]["timing_s/step"]}
    for key, name in SHOWN.items():
        values = [metrics[key] for metrics in later if key in metrics]
        if values and (of_a_gpu or name not in OF_A_GPU):
            found[name] = median(values)
    found["probs diff"] = max(metrics[DIFF] for metrics in steps.values())
    if of_a_gpu:
        found["generated tokens/s"] = median(
            metrics["response_length/mean"] * 32 / metrics["timing_s/gen"] for metrics in later
        )
    return found


def make_inputs(out: Path) -> None:
    """The model, a classifier and the rows, unless they are there."""
    if (out / "rows.parquet").exists():
        return
    from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer

    make_model(out, "model")
    tokenizer = make_tokenizer(CORPUS, out / "classifier", 512)
    make_classifier(out / "classifier", tokenizer, hidden=256, layers=2, max_positions=4096)
    problems, _ = arithmetic.train_test(0, 128, 16)
    write_parquet([arithmetic.to_row(each, "train", i) for i, each in enumerate(problems)], out / "rows.parquet")


def make_model(out: Path, name: str) -> None:
    """A model of one of `SHAPES` with random weights, unless it is there."""
    if (out / name / "config.json").exists():
        return
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer

    tokenizer = make_tokenizer(CORPUS, out / name, 512)
    hidden, layers, heads, key_heads, mlp, vocabulary, deviation = SHAPES[name]
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=mlp,
        vocab_size=vocabulary or len(tokenizer),
        initializer_range=deviation,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        **ids,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM._from_config(config, dtype=torch.float32 if name == "model" else torch.bfloat16)
    model.generation_config = GenerationConfig(**{**ids, "do_sample": True, "temperature": 1.0})
    model.save_pretrained(str(out / name))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is made on the spot
    main(Path(sys.argv[1]), *sys.argv[2:])
