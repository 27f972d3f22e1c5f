"""The warm start's transcripts are what it says they are, and a few steps of it learn something."""

import random
import re
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_rl.data.arithmetic import generate
from tests.warm_start import teaching

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
def test_habits(warm_start, habit):
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


def test_training_lowers_the_loss_and_saves_the_model(warm_start, trained):
    path, result = trained
    tokenizer = AutoTokenizer.from_pretrained(path)
    rows = warm_start.encode(tokenizer, list(warm_start.transcripts(generate(3, 16), random.Random(0))))
    tokens = sum(sum(mask) for _, mask in rows)
    with torch.no_grad():
        loss = (
            warm_start.assistant_loss(AutoModelForCausalLM.from_pretrained(path), rows, tokenizer.pad_token_id) / tokens
        )
    assert result["steps"] == 15 * warm_start.COPY_ATTEMPTS + 15  # so short a start never copies
    assert result["seconds"] > 0
    assert float(loss) < 5.7  # an untrained model has about log(512) = 6.2
