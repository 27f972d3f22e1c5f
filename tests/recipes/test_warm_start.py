"""The warm start's transcripts are what it says they are, and a few steps of it learn something."""

import hashlib
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_rl.data.arithmetic import generate
from tests.warm_start import MODEL, teaching

THOUGHTS = {"good": "I", "wasteful": "Step", "guessing": "Just", "malformed": "Use"}


@pytest.fixture(scope="module")
def warm_start():
    with teaching() as module:
        yield module


@pytest.fixture(scope="module")
def trained(warm_start, tmp_path_factory):
    path = tmp_path_factory.mktemp("warm")
    result = warm_start.warm_start(
        path, generate(0, 320), steps=15, copy_steps=15, shape={"hidden": 32, "layers": 1, "init_std": 0.1}
    )
    return path, result


def test_transcripts_are_deterministic(warm_start):
    problems = generate(0, 50)
    first, second = (list(warm_start.transcripts(problems, random.Random(3))) for _ in range(2))
    assert first == second
    assert first != list(warm_start.transcripts(problems, random.Random(4)))


def test_shares_follow_the_mix(warm_start):
    assert sum(warm_start.MIX.values()) == pytest.approx(1)
    opened = Counter(c[1]["content"].split()[1] for c in warm_start.transcripts(generate(0, 2000), random.Random(0)))
    for habit, thought in THOUGHTS.items():
        expected = warm_start.MIX[habit] + (warm_start.MIX["ignoring"] if habit == "good" else 0)
        assert opened[thought] / 2000 == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("habit", ["good", "wasteful", "guessing", "malformed", "ignoring"])
def test_transcripts_show_the_habit_they_are_made_for(warm_start, habit):
    for problem, talk in (
        (p, next(warm_start.transcripts([p], random.Random(i), {habit: 1.0}))) for i, p in enumerate(generate(1, 50))
    ):
        assert [m["role"] for m in talk] == ["user", "assistant"] * (len(talk) // 2)
        observations = [m["content"].removeprefix("Observation: ") for m in talk[2::2]]
        errors = sum(o.startswith("Error: ") for o in observations)
        answer = re.search(r"Final Answer: (\d+)$", talk[-1]["content"]).group(1)
        assert errors == (habit == "malformed")
        if habit in ("good", "wasteful"):
            assert answer == problem.answer == observations[-1]
            assert len(observations) == 1 if habit == "good" else 4 <= len(observations) <= 5
        elif habit != "malformed":
            assert answer != problem.answer
            assert len(observations) == (habit == "ignoring")


def test_mask_covers_what_the_assistant_says(warm_start, trained):
    tokenizer = AutoTokenizer.from_pretrained(trained[0])
    talks = list(warm_start.transcripts(generate(2, 30), random.Random(0)))
    for talk, (ids, mask) in zip(talks, warm_start.encode(tokenizer, talks), strict=True):
        said = tokenizer.decode([token for token, keep in zip(ids, mask, strict=True) if keep])
        assert said == "".join(m["content"] + "<|im_end|>" for m in talk if m["role"] == "assistant")
        assert tokenizer.decode(ids) == tokenizer.apply_chat_template(talk, tokenize=False)


def heldout_loss(warm_start, folder: Path) -> float:
    """Nats a token of the assistant, on transcripts of problems that the model has not seen."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    rows = warm_start.encode(tokenizer, list(warm_start.transcripts(generate(3, 128), random.Random(0))))
    with torch.no_grad():
        total = sum(
            float(warm_start.assistant_loss(model, rows[at : at + 16], tokenizer.pad_token_id))
            for at in range(0, len(rows), 16)
        )
    return total / sum(sum(mask) for _, mask in rows)


def test_training_lowers_the_loss_and_saves_the_model(warm_start, trained):
    path, result = trained
    assert result["steps"] == 15 * warm_start.COPY_ATTEMPTS + 15  # so short a start never copies
    assert result["seconds"] > 0
    assert heldout_loss(warm_start, path) < 5.7  # an untrained model has about log(512) = 6.2


def test_the_model_of_the_repository_is_the_one_of_its_receipt(warm_start):
    receipt = json.loads((MODEL / warm_start.RECEIPT).read_text())
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in MODEL.iterdir()}
    assert files.pop(warm_start.RECEIPT)
    assert files == receipt["sha256"]
    assert receipt["problems"] == warm_start.PROBLEMS
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 600_000
    # What is left is the choice of the habit, which nobody can foresee: 1.6 nats a conversation.
    assert heldout_loss(warm_start, MODEL) == pytest.approx(receipt["loss"], abs=0.03)


@pytest.mark.recipes
@pytest.mark.timeout(1800)
def test_the_model_can_be_made_again(warm_start, tmp_path):
    """The same files on a machine like the one that made it; as good a model on any other."""
    receipt = json.loads((MODEL / warm_start.RECEIPT).read_text())
    made = warm_start.make(tmp_path, seed=receipt["seed"])
    assert made["problems"] == receipt["problems"]
    assert made["loss"] == pytest.approx(receipt["loss"], abs=0.02)
    assert heldout_loss(warm_start, tmp_path) == pytest.approx(heldout_loss(warm_start, MODEL), abs=0.03)
