"""Generates docs/reference/gpu_node.md: what a GPU node needs, memory by model size, and recipes by number of GPUs.

The figures are the doctor's estimates, not measurements, as the page states.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from omegaconf import DictConfig, OmegaConf

from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.machine import STACK
from agent_rl.launch.doctor.checks.memory import GIB, GpuNeed, gpu_need

__all__ = ["CARD", "LAYOUTS", "SHAPES", "SIZES", "gpu_page", "needs"]

ROOT = Path(__file__).parents[1]
CARD = 79 * GIB
"""Usable memory of an H100 with 80 GB, in bytes."""

SHAPES: dict[str, dict[str, Any]] = {
    name: {
        "model_type": "qwen2", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": mlp, "vocab_size": vocabulary, "tie_word_embeddings": tied,
    }
    for name, (hidden, layers, heads, kv, mlp, vocabulary, tied) in {
        "0.5B": (896, 24, 14, 2, 4864, 151_936, True),
        "3B": (2048, 36, 16, 2, 11_008, 151_936, True),
        "7B": (3584, 28, 28, 4, 18_944, 152_064, False),
        "14B": (5120, 48, 40, 8, 13_824, 152_064, False),
        "32B": (5120, 64, 40, 8, 27_648, 152_064, False),
    }.items()
}  # fmt: skip
"""Published shapes of Qwen2.5's models, as keys of their `config.json`."""

ROLLOUT, OFFLOAD = "actor_rollout_ref.rollout", "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true"
ONE_GPU_TOKENS = (
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=32768",
)
"""Overrides for one GPU: smaller logits in the update, and fewer transfers of the reference policy from the host."""
SIZES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("0.5B", 1, ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192", f"{ROLLOUT}.gpu_memory_utilization=0.5")),
    ("3B", 1, (OFFLOAD, *ONE_GPU_TOKENS)),
    ("3B", 8, ()),
    ("7B", 1, ("tuning=lora",)),
    ("7B", 8, ()),
    ("14B", 8, (f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.gpu_memory_utilization=0.5")),
    ("32B", 8, ("tuning=lora", f"{ROLLOUT}.tensor_model_parallel_size=4")),
    ("32B", 16, (f"{ROLLOUT}.tensor_model_parallel_size=4", f"{ROLLOUT}.gpu_memory_utilization=0.5")),
)
"""Model, number of GPUs, and overrides of gsm8k_calculator with `size=3b`, for each row of the table."""

LORA = "tuning=lora actor_rollout_ref.actor.optim.lr=1e-5"
SMALLER = " ".join((OFFLOAD, *ONE_GPU_TOKENS))
SHARED = "agent_rl.reward.models.{}.placement=shared"
TWO_SHARED = f"{SHARED.format('helpful')} {SHARED.format('polite')}"
ALONE = "agent_rl.reward.models.helpful.n_gpus_per_node=1 agent_rl.reward.models.helpful.tensor_parallel_size=1"
HALF_B = "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct"
ONE, FOUR = "trainer.n_gpus_per_node=1", "trainer.n_gpus_per_node=4"
OTHERS = {
    "bt_reward_model": {"1": f"{ONE} {SMALLER} {SHARED.format('preference')}", "4": SHARED.format("preference")},
    "code_fusion": {"1": f"{ONE} {HALF_B}", "4": f"{FOUR} {OFFLOAD}"},
    "hh_rlhf": {
        "1": f"{ONE} {HALF_B} {SHARED.format('preference')}",
        "4": f"{FOUR} {OFFLOAD} {SHARED.format('preference')}",
    },
    **{
        f"reasoning_rm_{kind}": {"1": f"{ONE} {LORA} {ROLLOUT}.tensor_model_parallel_size=1", "4": FOUR}
        for kind in ("pairwise", "pointwise")
    },
    "self_judged": {"1": f"{ONE} {SMALLER} {SHARED.format('trained')}", "4": f"{FOUR} {SHARED.format('trained')}"},
    "service": {"1": f"{ONE} {LORA}", "4": FOUR},
    "multi_rm": {"1": f"{ONE} {LORA} {TWO_SHARED} {ALONE}", "4": TWO_SHARED},
}
"""Overrides by number of GPUs for recipes with a critic, their own reward models, or long conversations."""


PUBLISHED = (
    ("weights of Qwen2.5-7B on 8 GPUs", "3.56", "3.55", "https://github.com/hkust-nlp/simpleRL-reason/issues/84"),
    (
        "weights of Qwen2.5-0.5B and of its critic on 2 GPUs",
        "1.84",
        "1.84",
        "https://github.com/verl-project/verl/issues/2151",
    ),
    (
        "update of verl's quickstart: PPO, Qwen2.5-0.5B, 1 GPU, T = 4 x 768",
        "20.8",
        "18.8",
        "a user's log of https://verl.readthedocs.io/en/latest/start/quickstart.html",
    ),
    (
        "update of GRPO, Qwen2.5-3B, 2 L20, T = 5,472: all tokens of its step",
        "28.8",
        "31.1",
        "a guide to verl with Harbor on Alibaba Cloud",
    ),
    (
        "update of GSPO, Qwen3-8B, FSDP2, 8 NPUs, T = 2,048",
        "20.8",
        "20.5",
        "verl's nightly run_gspo_qwen3_8b_fsdp2_npu.sh, run 33214313669",
    ),
)
"""Run, memory of one GPU in GiB in verl's output, the doctor's estimate, and source."""


def _layouts() -> dict[str, dict[str, str]]:
    layouts = {}
    for folder in sorted(ROOT.glob("recipes/*/size")):
        recipe = folder.parent.name
        large = re.search(r"size: [78]b", (folder.parent / "config.yaml").read_text())
        layouts[recipe] = OTHERS.get(recipe, {"1": f"{ONE} {LORA if large else SMALLER}", "4": FOUR})
    return layouts


LAYOUTS = _layouts()
"""Overrides of each recipe on a node with 1 or 4 GPUs of 80 GB; nodes with 8 GPUs need no overrides."""


def needs(model: str, gpus: int, overrides: Iterable[str]) -> tuple[Case, GpuNeed]:
    """Return the doctor's estimate for a model on this number of H100 GPUs."""
    nodes, groups = max(1, gpus // 8), tuple(word for word in overrides if word.startswith("tuning="))
    config = _composed(groups).copy()
    OmegaConf.update(config, "trainer.n_gpus_per_node", gpus // nodes)
    OmegaConf.update(config, "trainer.nnodes", nodes)
    for key, _, value in (word.partition("=") for word in overrides if word not in groups):
        OmegaConf.update(config, key, yaml.safe_load(value))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPES[model]))
        OmegaConf.update(config, "actor_rollout_ref.model.path", folder)
        case = Case(environ={}, config=config)
        return case, gpu_need(case, CARD)


@functools.cache
def _composed(groups: tuple[str, ...]) -> DictConfig:
    """Return the recipe's configuration for GPUs, whatever platform this process uses."""
    with mock.patch.dict(os.environ):
        os.environ.pop("VERL_PLATFORM", None)
        return compose("gsm8k_calculator", ["size=3b", *groups])


FIRST_RUN = """# A GPU node

agent_rl has not been run on a GPU yet. All GPU figures in this documentation come from the named sources, formulas or
dry runs. [tests/gpu](../../tests/gpu/README.md) measures the package on one GPU, even on a machine where you cannot
install anything.

## The first run

```bash
python -m venv .venv                       # Python 3.10, 3.11 or 3.12
. .venv/bin/activate
pip install uv
uv pip install "agent-rl[sglang] @ git+<this repository>"  # 5 GB to download, 11 GB on the disk
agent-rl doctor quickstart                 # reports what would stop a run on this machine, and how to fix it
agent-rl sft quickstart                    # makes rows and a model with 0.1 M parameters
agent-rl train quickstart                  # tests the whole loop on one GPU
agent-rl train gsm8k_calculator size=0.5b  # trains a real model on one GPU with 24 GB or more
```

Installing takes 5 to 15 minutes with a fast connection. The first time that the engine starts on a machine, it compiles
kernels for 2 to 4 minutes, and the run reports this. To try a command without the GPUs, in the same installation, put
`VERL_PLATFORM=cpu` before it.

Installing needs a package index. Of the commands, only the last one needs the hub, for rows and model. If the node has
no internet access, fill the cache from another machine, in a folder that both can see:

```bash
export HF_HOME=/shared/huggingface
hf download Qwen/Qwen2.5-0.5B-Instruct
python data_preprocess/gsm8k_multiturn_w_tool.py
```

On the node, set the same `HF_HOME` and `HF_HUB_OFFLINE=1`. If a model is not in the cache, the doctor queries the hub
for at most 3 seconds, and names the model if the hub does not answer.

## What the launcher sets

`agent-rl train` sets three variables for its processes and for a Ray cluster that it joins. `LD_LIBRARY_PATH` gets the
folder of `libcudart.so.13` in the wheels, `CUDA_HOME` the newest complete toolkit in `/usr/local` or on `PATH`, and
`PATH` the environment's `bin`. Values that you have set are kept. `--dry-run` prints the variables before the command.

## What the node needs

[`agent-rl doctor`](../guides/doctor.md) checks each row, and also packages, memory, disk, `/dev/shm`, cores and GPUs.
With `--save-machine` and `--machine` you can check a run for another machine, also from a SLURM task.
"""

MEMORY = """## Memory of one GPU, in GiB

The table is for Qwen2.5 on H100 GPUs with 80 GB. All rows use gsm8k_calculator's `size=3b` and change the model. P is
the number of parameters, G of GPUs, TP of GPUs per engine, and T of tokens in a micro-batch. B is 4 bytes per number
(2 with `fsdp_config.model_dtype=bf16`), and F the card's free memory.

- states = 4 B P / G (weights, gradients, two moments; with LoRA only the weights; a critic needs as much again)
- activations = 2 T x hidden x layers (17 times as much without gradient checkpointing)
- logits = 8 T x vocabulary (none with `use_fused_kernels=true`)
- update = states + activations + logits + 4 x vocabulary x hidden bytes (each GPU gathers that matrix and its gradient)
  + 1.5 for the engine's CUDA graphs + 1.5 for CUDA contexts and NCCL
- engine = `gpu_memory_utilization` x (F - B P / G - 1.5), cache = engine - 2 P / TP,
  bytes per token in the cache = 4 x layers x key-value heads x head size / TP
- rollout = engine + the states that stay on the GPU + 1.5 + 1.5
"""

AGREEMENT = """The engine's estimate agrees to 1 % with the figures that SGLang printed for Qwen3-30B-A3B (weights
56.98, 204.63 left of 287.18 x 0.911, 1,669,816 tokens in 152.88; sglang's pull request 18263). The bytes per token also
agree for Qwen3-235B-A22B on four H100 (367,404 tokens in 16.46 GiB; vllm's issue 21348).
The next table compares the trainer's estimate, without graphs and contexts, with verl's output in public runs:
"""

RECIPES = """`tests/launch/doctor/checks/test_memory.py` computes these estimates.

## Recipes on other numbers of GPUs

On one or two nodes with 8 GPUs of 80 GB, recipes need no overrides; [Scale](scale.md) estimates what limits larger
clusters. With the overrides below, the doctor finds no problem on 1 or 4 GPUs:
"""


def gpu_page(note: str, table: Any) -> str:
    """Return the text of the page.

    Args:
        note: first line of the page.
        table: makes a Markdown table from columns and rows.
    """
    rows = ((row.subject, row.wanted, row.otherwise, row.source) for row in STACK)
    layouts = ((recipe, f"`{words['1']}`", f"`{words['4']}`") for recipe, words in sorted(LAYOUTS.items()))
    columns = ("model", "GPUs", "overrides", "states", "activations", "logits", "update", "engine", "cache", "rollout")
    return "\n".join(
        [
            f"{note}\n{FIRST_RUN}",
            table(("", "wanted", "otherwise", "source"), rows),
            MEMORY,
            table(columns, _memory_rows()),
            AGREEMENT,
            table(("run", "published", "estimate", "source"), PUBLISHED),
            RECIPES,
            table(("recipe", "1 GPU", "4 GPUs"), layouts),
        ]
    )


def _memory_rows() -> Iterator[tuple[str, ...]]:
    for model, gpus, overrides in SIZES:
        case, need = needs(model, gpus, overrides)
        cache = need.pool - need.engine_weights
        figures = [need.states, need.activations, need.logits, need.update, need.pool]
        words = " ".join(f"`{re.sub('^.*[.](?=[a-z_]+=)', '', word)}`" for word in overrides) or "-"
        capacity = f"{cache / GIB:.1f}: {cache / need.kv_per_token / 1000:.0f} k tokens"
        label = f"{model}, {(case.model.parameters or 0) / 1e9:.2f} G"
        row = [label, str(gpus), words, *(f"{figure / GIB:.1f}" for figure in figures)]
        yield (*row, capacity, f"{need.rollout / GIB:.1f}")
