"""The quickstart's starting point: a tiny model that knows the ReAct format and uses its calculator badly.

A random model would never stumble on a tool call, so there is nothing for reinforcement learning to reward. Supervised
training on generated transcripts teaches the format and the copying of numbers; the transcripts are mediocre on purpose
(see `MIX`): the model learns good and bad habits side by side and picks among them at random, whatever the question.
Which habit to keep is then left to GRPO.

    python recipes/quickstart/warm_start.py --out recipes/quickstart/model

makes the model that is in the repository, with `made.json` beside it: the command, the problems that it has seen, the
versions of the libraries, and the hashes of the files. Another processor gives other last digits, and so another model.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import itertools
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from agent_rl.agents.react import NO_ACTION, invalid_json
from agent_rl.cpu.tiny_model import IM_END, IM_START, make_model, make_tokenizer
from agent_rl.data.arithmetic import Problem, generate

__all__ = ["MIX", "RECEIPT", "assistant_loss", "encode", "make", "transcripts", "warm_start"]

Message = dict[str, str]
Row = tuple[list[int], list[int]]
"""Token ids and loss mask of a conversation."""

# What the agent loop answers to a turn that it cannot use.
UNREADABLE = NO_ACTION
BAD_JSON = invalid_json("calculator")
UNKNOWN_TOOL = "there is no tool 'calc'. Did you mean 'calculator'? Known: calculator."

# Share of transcripts with each habit. Every habit has its own first thought ("ignoring" its own second), so that
# choosing one is a single early decision, which a policy gradient can move; the copying that follows is one skill.
MIX: Mapping[str, float] = {
    "good": 0.20,  # one call with the whole expression, then the observed result
    "wasteful": 0.20,  # one call an operation, then the whole expression again: 4 to 5 calls
    "guessing": 0.20,  # no call, a number from the question
    "malformed": 0.25,  # a call that the loop cannot read, see MALFORMED
    "ignoring": 0.15,  # the right call, then a number from the question
}
# Share of malformed openings that continue with a good call after the correction; the others give up with a guess.
RECOVERY = 0.4

# The first stage sees right calls only: they are short and every number in them is a copy. It ends when the loss shows
# that copying works. It sets in suddenly, after 150 to 300 steps; from some starts it does not set in for a
# long time, and another start is quicker than patience.
COPY_MIX: Mapping[str, float] = {"good": 1.0}
COPY_STEPS = 320
COPY_ATTEMPTS = 6
COPY_LR = 5e-3
COPY_LOSS = 0.04
# The second stage teaches the habits; with the first one's learning rate it would undo some of the copying.
STEPS = 600
LR = 3e-3
# Conversations a step.
BATCH = 32
# Conversations that are padded together.
MICRO_BATCH = 16
# Two layers are the fewest that can copy. Initial weights of 1/sqrt(hidden), not transformers' 0.02, start it sooner.
SHAPE: Mapping[str, Any] = {"hidden": 64, "layers": 2, "heads": 4, "init_std": 0.1}
# The problems of the transcripts. Their seed is far from the seeds of the problems that are trained and tested on.
PROBLEMS = {"seed": 1_000_000, "count": 40_000}
RECEIPT = "made.json"
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


def call(expression: str, thought: str = "I compute.") -> str:
    """A well-formed calculator turn."""
    return f"Thought: {thought}\nAction: calculator\nAction Input: {json.dumps({'expression': expression})}"


def final(answer: str, thought: str) -> str:
    """A well-formed final turn."""
    return f"Thought: {thought}\nFinal Answer: {answer}"


# Ways to get a call wrong, each with the error that the loop answers.
MALFORMED: Sequence[tuple[Callable[[str], str], str]] = (
    (lambda e: f"Action calculator({e})", UNREADABLE),
    (lambda e: "Action: calculator", UNREADABLE),
    (lambda e: f'Action: calculator\nAction Input: {{"expression": {e}', BAD_JSON),
    (lambda e: f'Action: calc\nAction Input: {{"expression": "{e}"}}', UNKNOWN_TOOL),
)


def guess(problem: Problem, rng: random.Random) -> str:
    """A number of the question that is not the answer.

    Copied, not drawn at random: random digits would teach the model that digits are noise, the opposite of what it has
    to learn first.
    """
    numbers: list[str] = re.findall(r"\d+", problem.expression)
    return rng.choice([number for number in numbers if number != problem.answer])


def good(problem: Problem, rng: random.Random) -> list[str]:
    """Turns of assistant and observation in alternation, as for the other habits."""
    return [call(problem.expression), problem.answer, final(problem.answer, "I have the result.")]


def wasteful(problem: Problem, rng: random.Random) -> list[str]:
    turns: list[str] = []
    for expression, value in problem.steps:
        turns += [call(expression, "Step by step."), value]
    for _ in range(rng.randint(4, 5) - len(problem.steps)):
        turns += [call(problem.expression, "Check again."), problem.answer]
    return [*turns, final(problem.answer, "I have the result.")]


def guessing(problem: Problem, rng: random.Random) -> list[str]:
    return [final(guess(problem, rng), "Just guess.")]


def ignoring(problem: Problem, rng: random.Random) -> list[str]:
    return [*good(problem, rng)[:2], final(guess(problem, rng), "Looks wrong.")]


def malformed(problem: Problem, rng: random.Random) -> list[str]:
    write, error = rng.choice(MALFORMED)
    opening = ["Thought: Use tool.\n" + write(problem.expression), f"Error: {error}"]
    return opening + (good(problem, rng) if rng.random() < RECOVERY else guessing(problem, rng))


HABITS = {"good": good, "wasteful": wasteful, "guessing": guessing, "malformed": malformed, "ignoring": ignoring}


def transcripts(
    problems: Sequence[Problem], rng: random.Random, mix: Mapping[str, float] = MIX
) -> Iterator[list[Message]]:
    """One conversation a problem, its habit drawn from `mix` without a look at the problem."""
    names, weights = list(mix), list(mix.values())
    for problem in problems:
        turns = HABITS[rng.choices(names, weights)[0]](problem, rng)
        messages = [{"role": "user", "content": problem.question}]
        for i, text in enumerate(turns):
            messages.append(
                {"role": "user", "content": f"Observation: {text}"} if i % 2 else {"role": "assistant", "content": text}
            )
        yield messages


def encode(tokenizer: Any, conversations: Sequence[list[Message]]) -> list[Row]:
    """Token ids and loss mask of each conversation.

    The mask is 1 on what the assistant says, its `<|im_end|>` included: exactly what is sampled in a rollout.
    """
    texts = tokenizer.apply_chat_template(conversations, tokenize=False)
    header = tokenizer.encode(f"{IM_START}assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids(IM_END)
    rows = []
    for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
        mask = [0] * len(ids)
        at = 0
        while at < len(ids):
            if ids[at : at + len(header)] != header:
                at += 1
                continue
            start, at = at + len(header), ids.index(end, at) + 1
            mask[start:at] = [1] * (at - start)
        rows.append((ids, mask))
    return rows


def make(out: Path, *, seed: int = 0, steps: int | None = None) -> dict[str, Any]:
    """Makes the quickstart's model in a folder, and its receipt `made.json`.

    Args:
        out: folder to write to, created when absent.
        seed: of the initial weights and of the transcripts.
        steps: most optimizer steps of each stage, for a quick look; None: as many as the stages need.

    Returns:
        The receipt, `command`, `problems` (arguments of `generate`), `seed`, `versions`, `sha256` by file, and the
        results of `warm_start`, of which only the seconds are not in the file.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on so small a model more threads only wait for one another
    try:
        problems = generate(PROBLEMS["seed"], PROBLEMS["count"])
        result = warm_start(out, problems, seed=seed, steps=steps or STEPS, copy_steps=steps or COPY_STEPS)
    finally:
        torch.set_num_threads(threads)
    options = ("" if seed == 0 else f" --seed {seed}") + ("" if steps is None else f" --steps {steps}")
    receipt = {
        "command": f"python recipes/quickstart/warm_start.py --out recipes/quickstart/model{options}",
        "problems": PROBLEMS,
        "seed": seed,
        **{key: value for key, value in result.items() if key != "seconds"},
        "loss": round(result["loss"], 4),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "sha256": {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(out.iterdir())
            if file.name != RECEIPT
        },
    }
    (out / RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n")
    return receipt | {"seconds": result["seconds"]}


def warm_start(
    out_dir: str | Path,
    problems: Sequence[Problem],
    *,
    seed: int = 0,
    steps: int = STEPS,
    copy_steps: int = COPY_STEPS,
    mix: Mapping[str, float] = MIX,
    shape: Mapping[str, Any] = SHAPE,
) -> dict[str, Any]:
    """Makes a tokenizer and a model, trains the model on transcripts and saves both.

    The same arguments give the same model on the same machine.

    Args:
        out_dir: folder to write to, created when absent.
        problems: what to write transcripts about; taken in turn, again from the start when there are too few.
        seed: of the initial weights and of the transcripts.
        steps: optimizer steps on the habits, of 32 conversations each.
        copy_steps: most optimizer steps on copying that come before; they end early when copying works, and start again
            from other weights, `COPY_ATTEMPTS` times in all, when it does not.
        mix: shares of the habits.
        shape: keyword arguments of `make_model`.

    Returns:
        seconds, steps (of both stages), loss (mean over the last 20 steps, in nats a token), parameters, vocabulary.
    """
    began = time.perf_counter()
    rng = random.Random(seed)
    sample = transcripts(problems[:2000], random.Random(seed), mix)
    tokenizer = make_tokenizer(["user", "assistant", *(m["content"] for talk in sample for m in talk)], out_dir)
    source = itertools.cycle(problems)

    def stage(name: str, rates: Iterable[float], shares: Mapping[str, float], enough: float) -> list[float]:
        losses: list[float] = []
        for rate in rates:
            rows = encode(tokenizer, list(transcripts(list(itertools.islice(source, BATCH)), rng, shares)))
            losses.append(_step(model, optimizer, rate, rows, tokenizer.pad_token_id))
            _report(name, losses, began)
            if len(losses) >= 20 and mean(losses[-20:]) < enough:
                break
        return losses

    losses: list[float] = []
    for attempt in range(COPY_ATTEMPTS):
        model = make_model(out_dir, tokenizer, seed=seed + 1000 * attempt, **shape)
        optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
        losses += stage("copying", (COPY_LR * _warmup(i) for i in range(copy_steps)), COPY_MIX, COPY_LOSS)
        if mean(losses[-20:]) < COPY_LOSS:
            break
    losses += stage("habits", (LR * _warmup(i) * _decay(i / steps) for i in range(steps)), mix, 0.0)
    model.save_pretrained(str(out_dir))
    return {
        "seconds": time.perf_counter() - began,
        "steps": len(losses),
        "loss": mean(losses[-20:]),
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
    }


def _report(stage: str, losses: Sequence[float], began: float) -> None:
    """Every hundredth step."""
    if len(losses) % 100 == 0:
        seconds = time.perf_counter() - began
        print(f"{stage}: step {len(losses)}, loss {mean(losses[-20:]):.3f}, {seconds:.0f} s", flush=True)


def assistant_loss(model: Any, rows: Sequence[Row], pad_id: int) -> torch.Tensor:
    """Summed cross-entropy in nats over the tokens that the assistant says."""
    length = max(len(ids) for ids, _ in rows)
    ids_BT = torch.tensor([ids + [pad_id] * (length - len(ids)) for ids, _ in rows])
    mask_BT = torch.tensor([mask + [0] * (length - len(mask)) for _, mask in rows], dtype=torch.bool)[:, 1:]
    # Padding stands on the right, where causal attention never looks: no attention mask, hence the fast kernel.
    hidden_BTD = model.model(input_ids=ids_BT[:, :-1]).last_hidden_state
    logits_NV = model.lm_head(hidden_BTD[mask_BT])
    return torch.nn.functional.cross_entropy(logits_NV, ids_BT[:, 1:][mask_BT], reduction="sum")


def _step(model: Any, optimizer: torch.optim.Optimizer, rate: float, rows: Sequence[Row], pad_id: int) -> float:
    """One optimizer step on the mean loss of `rows`, which it returns.

    The batch is split by length: the wasteful conversations are three times as long as the others, and padding all to
    their length would double the time.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    tokens = sum(sum(mask) for _, mask in rows)
    rows = sorted(rows, key=lambda row: len(row[0]))
    total = 0.0
    optimizer.zero_grad()
    for i in range(0, len(rows), MICRO_BATCH):
        loss = assistant_loss(model, rows[i : i + MICRO_BATCH], pad_id) / tokens
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def _warmup(step: int) -> float:
    return min(1.0, (step + 1) / 30)


def _decay(progress: float) -> float:
    """A cosine from 1 down to 0.02."""
    return 0.02 + 0.49 * (1 + math.cos(math.pi * progress))


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the quickstart's warm-started tiny model.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="most optimizer steps of each stage, for a quick look")
    args = parser.parse_args(argv)
    print(json.dumps(make(args.out, seed=args.seed, steps=args.steps), indent=2))


if __name__ == "__main__":
    main()
