"""Runs verl's SFT trainer on the recorded tokens of episodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from agent_rl.cpu import switch as cpu
from agent_rl.cpu.profile import profile_of
from agent_rl.launch.command import quoted
from agent_rl.launch.output import process_end
from agent_rl.launch.process import Tail, TrainerError, begin_child, follow, stop

CPU = (
    "trainer.device=cpu",
    "model.use_remove_padding=False",
    "model.enable_gradient_checkpointing=False",
    "++model.override_config.attn_implementation=sdpa",
    "engine.strategy=fsdp2",
    "engine.use_torch_compile=False",
    "engine.dtype=float32",
    "++engine.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    "data.num_workers=0",
)
"""The CPU settings of `config/platform/cpu.yaml`, under the SFT trainer's keys."""
FIXED = (
    "data.custom_cls.path=pkg://agent_rl/verl_adapter/row_data_set",
    "data.custom_cls.name=EpisodeDataSet",
    "trainer.logger=[console]",
    "trainer.total_epochs=100000",
    "trainer.resume_mode=disable",
    "checkpoint.save_contents=[hf_model]",
)
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The variables that torch's launcher would set for one process, with any free port."""

_LOSS = re.compile(r"train/loss:([\d.e-]+)")


def train_supervised(
    model: Path,
    episodes: Path,
    out: Path,
    steps: int,
    overrides: Sequence[str] = (),
    devices: int = 1,
    on_step: Callable[[float], None] = lambda loss: None,
) -> float:
    """Train a model for a number of steps on one node, and write it to a folder.

    Args:
        model: the model's folder.
        episodes: the file that `EpisodeDataSet` reads.
        out: the new folder; the trainer's output is in `<out>.log`.
        steps: number of optimizer steps.
        overrides: additional keys of verl's `sft_trainer_engine.yaml`.
        devices: number of processes, each with a device; several processes share the model's weights.
        on_step: called with the loss of each step, in nats per token.

    Returns:
        The mean loss of the last 20 steps, in nats per token.

    Raises:
        TrainerError: the trainer fails.
    """
    work, log = out.with_suffix(".tmp"), out.with_suffix(".log")
    shutil.rmtree(work, ignore_errors=True)
    several = ["torch.distributed.run", "--standalone", f"--nproc_per_node={devices}", "-m"] if devices > 1 else []
    command = [sys.executable, "-m", *several, "verl.trainer.sft_trainer", f"model.path={quoted(model)}"]
    command += [f"data.train_files={quoted(episodes)}", f"trainer.default_local_dir={quoted(work)}"]
    command += [f"trainer.total_training_steps={steps}", f"hydra.run.dir={quoted(work / 'hydra')}", *FIXED]
    env = {**os.environ, **(ALONE if devices == 1 else {})}
    if cpu.is_selected():
        profile = profile_of(model)
        command += [*CPU, *(("++engine.mixed_precision.param_dtype=bf16",) if profile.bfloat16 else ())]
        with profile.in_environment():
            env |= cpu.child_environment()
    log.parent.mkdir(parents=True, exist_ok=True)
    losses: deque[float] = deque(maxlen=20)

    def read(line: str) -> None:
        if match := _LOSS.search(line):
            losses.append(float(match[1]))
            on_step(losses[-1])

    with open(log, "ab") as output:
        start = output.tell()
        child = subprocess.Popen(
            [*command, *overrides], stdout=output, stderr=subprocess.STDOUT, env=env, preexec_fn=begin_child
        )
    try:
        follow(child, [Tail(log, start, read)])
    finally:
        stop(child)
    if child.returncode:
        end = process_end(log, child.returncode, start)
        raise TrainerError(f"supervised training failed: {end}. See {log}", child.returncode)
    shutil.rmtree(out, ignore_errors=True)
    os.replace(work / f"global_step_{steps}" / "huggingface", out)
    shutil.rmtree(work)
    return fmean(losses)
