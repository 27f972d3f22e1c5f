"""Runs the pieces of `tests/gpu/run.sh` one after the other, and reports what they measured: `plan.py OUT`.

Each piece is a process with a time limit of at most eight minutes, a log, and a file with its answer, which makes a
second start go on where the first has ended. A piece that cannot run says why. Only the standard library is imported
here: a machine may have torch and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["PIECES", "Piece", "main", "report", "run"]

ROOT = Path(__file__).parents[2]
MOST_S = 480.0
ON_CPU = 3
"""A training piece may take so many times as long on a CPU: on two busy cores eight minutes are not enough."""
STACK = ("torch", "transformers", "verl", "sglang", "ray", "omegaconf")
MODELS = ("torch", "transformers")
FREE = "tests.gpu.engine_free"


@dataclass(frozen=True)
class Piece:
    """One process of the plan.

    Attributes:
        name: of its files.
        what: it tells.
        command: after the interpreter; `{out}` is the folder of the plan.
        needs: modules that must be importable.
        gpus: that must be there.
        minutes: that it takes on an H100, an estimate.
        limit_s: seconds on a GPU after which it is ended.
        where: a path that must exist; empty: none.
    """

    name: str
    what: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    gpus: int = 0
    minutes: float = 0.3
    limit_s: float = MOST_S
    where: str = ""

    def missing(self) -> str:
        """Why it cannot run here; empty: it can."""
        absent = [name for name in self.needs if find_spec(name) is None]
        if absent:
            return f"{', '.join(absent)} cannot be imported"
        if self.where and not (ROOT / self.where).exists():
            return f"there is no {self.where}"
        if gpus() < self.gpus and not self.runs_on_cpu():
            return f"{self.gpus} GPU(s) needed, {gpus()} here"
        return ""

    def most_seconds(self) -> float:
        """Seconds after which it is ended here."""
        return self.limit_s * (ON_CPU if self.runs_on_cpu() else 1)

    def runs_on_cpu(self) -> bool:
        """With `VERL_PLATFORM=cpu`, training runs do without GPUs."""
        return os.environ.get("VERL_PLATFORM") == "cpu" and "tests.gpu.training_run" in self.command


def gpus() -> int:
    """The GPUs that nvidia-smi lists."""
    if shutil.which("nvidia-smi") is None:
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0


def train(name: str, what: str, *overrides: str, gpus: int = 1, recipe: str = "gsm8k_calculator", **more: Any) -> Piece:
    """A piece that trains two steps, or as many as it is told."""
    command = ("-m", "tests.gpu.training_run", "{out}", name, recipe, *overrides)
    return Piece(name, what, command, STACK, gpus, **{"minutes": 1.2, **more})


LORA = ("tuning=lora", "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16")
REAL = (
    "trainer.total_training_steps=2", "data.train_batch_size=64", "data.max_response_length=1024",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64", "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192", "actor_rollout_ref.rollout.max_num_seqs=256",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
)  # fmt: skip
"""Sizes near those of a recipe."""
PREFERENCE = "agent_rl.reward.models.preference"
PIECES: tuple[Piece, ...] = (
    Piece("environment", "machine, driver, packages", ("-m", f"{FREE}", "environment"), limit_s=120),
    Piece("doctor", "the doctor on this machine", ("-m", "agent_rl.cli.main", "doctor", "--json"), STACK),
    Piece("log_probs", "log-probs in chunks: exact, seconds, memory", ("-m", FREE, "log_probs"), MODELS),
    Piece("fused_loss", "verl's fused log-probs against ours", ("-m", FREE, "fused_loss"), ("torch", "verl")),
    Piece(
        "update", "actor update under FSDP2: seconds, tokens a second, memory", ("-m", FREE, "update"),
        MODELS,
    ),
    Piece(
        "estimate", "the update's memory against the doctor's estimate", ("-m", FREE, "estimate", "{out}"),
        ("omegaconf", "hydra", "verl"), limit_s=120,
    ),
    Piece("bare_engine", "tokens a second of SGLang alone", ("-m", "tests.gpu.bare_engine", "{out}"), STACK, 1, 1.5),
    train("quickstart", "the whole loop on the GPU engine, ten steps", "trainer.total_training_steps=10"),
    *(
        train(algorithm, f"two steps of {algorithm}", f"algo={algorithm}", "kl=none")
        for algorithm in ("ppo", "rloo", "remax", "reinforce_plus_plus", "dapo", "gspo")
    ),
    train("kl_reward", "KL in the reward, with a reference policy", "algo=rloo", "kl=reward"),
    train("lora", "an adapter that is merged", *LORA),
    train("lora_adapter", "an adapter that the engine serves", *LORA, "actor_rollout_ref.model.lora.merge=false"),
    train("colocate_async", "trainer and engine take turns, without waiting", "mode=colocate_async"),
    train(
        "separate_async", "trainer and engine on GPUs of their own", "mode=separate_async",
        "trainer.n_gpus_per_node=1", gpus=2,
    ),
    train("folding", "rows of variable number", "actor_rollout_ref.rollout.agent.default_agent_loop=folding_agent",
          "agent_rl.folding.reserve_tokens=110", "data.max_response_length=512"),
    train("native_calls", "calls in the template's own syntax",
          "actor_rollout_ref.rollout.agent.default_agent_loop=tool_call_agent",
          "actor_rollout_ref.rollout.multi_turn.format=auto"),
    train("reward_model", "a served reward model on the policy's GPU", f"{PREFERENCE}.path={{out}}/classifier",
          f"{PREFERENCE}.placement=shared", recipe="bt_reward_model"),
    train("sdpa", "attention over all packed tokens, instead of torch's kernel for packed sequences",
          "++actor_rollout_ref.model.override_config.attn_implementation=sdpa"),
    train("resume", "a run of two steps, and a third one from its checkpoint", "trainer.save_freq=1", minutes=2.5),
    train("two_engines", "FSDP2 over two GPUs, an engine on each", "trainer.n_gpus_per_node=2", gpus=2),
    train("tensor_parallel", "FSDP2 over two GPUs, one engine on both", "trainer.n_gpus_per_node=2",
          "actor_rollout_ref.rollout.tensor_model_parallel_size=2", gpus=2),
    train("qwen_1_5b", "the shape of Qwen2.5-1.5B with random weights, two steps", *REAL,
          "actor_rollout_ref.model.path={out}/1.5b", minutes=4),
    train("qwen_3b", "the shape of Qwen2.5-3B with random weights, two steps", *REAL,
          "actor_rollout_ref.model.path={out}/3b", "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true",
          minutes=6),
    train("svamp", "a real small model on its recipe", recipe="svamp_calculator", where="recipes/svamp_calculator",
          minutes=3),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 1 if a piece has failed."""
    parser = argparse.ArgumentParser(description="What a GPU says about this package")
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[piece.name for piece in PIECES])
    parser.add_argument("--again", nargs="+", metavar="NAME", default=(), choices=[piece.name for piece in PIECES])
    args = parser.parse_args(argv)
    out = args.out.resolve()
    answers = run([each for each in PIECES if each.name in (args.only or [each.name])], out, args.again)
    print(f"{out}/report.md")
    return int(any(answer["status"] == "failed" for answer in answers.values()))


def run(pieces: Sequence[Piece], out: Path, again: Sequence[str] = (), tell: Callable[[str], None] = print) -> Any:
    """Run what has no answer yet; the answers of all pieces that were ever run in this folder, by name."""
    out.mkdir(parents=True, exist_ok=True)
    for piece in pieces:
        file = out / f"{piece.name}.json"
        if file.is_file() and piece.name not in again and json.loads(file.read_text())["status"] == "ok":
            tell(f"{piece.name}: has run")
            continue
        reason = piece.missing()
        tell(f"{piece.name}: {reason or f'{piece.what}, about {piece.minutes:g} min'}")
        answer = {"status": "not run", "why": reason} if reason else _run(piece, out)
        file.write_text(json.dumps({"what": piece.what, **answer}, indent=1) + "\n")
        tell(f"{piece.name}: {answer['status']}")
        report(out)
    return report(out)


def _run(piece: Piece, out: Path) -> dict[str, Any]:
    """Run one piece; its answer is the JSON in the last line that it prints."""
    command = [sys.executable, *(word.replace("{out}", str(out)) for word in piece.command)]
    limit_s = piece.most_seconds()
    started = time.monotonic()
    with open(out / f"{piece.name}.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
            why = ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            why = f"ended after {limit_s:g} seconds"
        log.write(said)
    taken = {"seconds": round(time.monotonic() - started, 1), "command": command[1:]}
    figures = _figures(said.decode(errors="replace"))
    # the doctor's exit status 1 means that it has found something
    if why or figures is None or (process.returncode and piece.name != "doctor"):
        lines = (out / f"{piece.name}.log").read_text(errors="replace").strip().splitlines()
        return {"status": "failed", "why": why or (lines[-1] if lines else f"exit {process.returncode}"), **taken}
    return {"status": "ok", "figures": figures, **taken}


def _figures(said: str) -> Any:
    try:
        return json.loads(said)  # of a command whose whole output is JSON
    except ValueError:
        pass
    try:
        return json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None


def report(out: Path) -> dict[str, Any]:
    """Write the page and the JSON of all answers in the folder."""
    order = {piece.name: number for number, piece in enumerate(PIECES)}
    files = [file for file in out.glob("*.json") if file.stem != "report"]
    files.sort(key=lambda file: (order.get(file.stem, len(order)), file.stem))
    answers = {file.stem: json.loads(file.read_text()) for file in files}
    (out / "report.json").write_text(json.dumps(answers, indent=1) + "\n")
    lines = ["# GPU report", "", "| piece | status | seconds | figures, or why not |", "| --- | --- | --- | --- |"]
    for name, answer in answers.items():
        figures = answer.get("figures") if name != "doctor" else _doctor(answer.get("figures"))
        shown = answer.get("why") or _shown(figures)
        lines.append(f"| {name}: {answer['what']} | {answer['status']} | {answer.get('seconds', '')} | {shown} |")
    (out / "report.md").write_text("\n".join(lines) + "\n")
    return answers


def _shown(figures: Any) -> str:
    """Figures in a cell."""
    if not isinstance(figures, dict):
        return ""
    plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in plain.items()
    )


def _doctor(found: Any) -> dict[str, Any]:
    """The doctor's problems and warnings about this machine."""
    findings = (found or {}).get("findings", [])
    return {
        each["subject"]: each["text"].replace("|", "/") for each in findings if each["status"] in ("problem", "warning")
    }


if __name__ == "__main__":
    raise SystemExit(main())
