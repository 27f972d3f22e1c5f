"""Tokens as shaded text: what was sampled and how probable it was, with characters of several tokens whole."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from agent_rl.trajectory.trace import TokenSequence
from agent_rl.trajectory.viewer import tokens
from agent_rl.trajectory.viewer.tokens import find_tokenizer, shaded

MODEL = Path(__file__).parents[3] / "recipes/quickstart/model"
TOKENIZER = MODEL / "tokenizer.json"


def sequence(ids: list[int], mask: list[int], logprobs: list[float] | None) -> TokenSequence:
    return TokenSequence(prompt_ids=[5], response_ids=ids, mask=mask, logprobs=logprobs, images=0)


def test_a_text_is_whole_and_each_token_has_its_shade() -> None:
    text = "Guess \u6f22\U0001f600 now"
    ids = Tokenizer.from_file(str(TOKENIZER)).encode(text).ids
    given = len(ids) // 2
    logprobs = [-0.01 if number % 2 else -3.0 for number in range(len(ids))]
    found = shaded(sequence(ids, [0] * given + [1] * (len(ids) - given), logprobs), TOKENIZER)
    assert "".join(token.text for token in found["response"]) == text
    assert sum(len(token.ids.split(", ")) for token in found["response"]) == len(ids)
    assert (found["response"][0].shade, found["size"], found["sampled"]) == ("given", len(ids), len(ids) - given)
    assert {token.shade for token in found["response"][-2:]} == {"s", "s s3"}
    assert found["mean"] == pytest.approx(sum(logprobs[given:]) / (len(ids) - given))


@pytest.mark.parametrize(
    ("probability", "shade"), [(-0.0, "s"), (-0.2, "s s1"), (-2.0, "s s2"), (-4.0, "s s3"), (-1e4, "s s4"), (0.1, "s")]
)
def test_less_probable_is_darker(probability: float, shade: str) -> None:
    (token,) = shaded(sequence([7], [1], [probability]), None)["response"]
    assert (token.text, token.shade) == ("7 ", shade)


def test_without_log_probs_the_mask_is_shown() -> None:
    found = shaded(sequence([7, 8], [1, 0], None), None)
    assert ([token.shade for token in found["response"]], found["mean"]) == (["s", "given"], None)


def test_a_long_sequence_is_cut_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 10)
    long = sequence([7] * 25, [1] * 25, [-0.1] * 25)
    assert (len(shaded(long, None)["response"]), shaded(long, None)["cut"]) == (10, 15)
    assert (len(shaded(long, None, full=True)["response"]), shaded(long, None, full=True)["cut"]) == (25, 0)
    long["prompt_ids"] = [7] * 14
    found = shaded(long, None)
    assert (len(found["prompt"]), found["prompt_size"], found["cut"]) == (10, 14, 4 + 15)


def test_the_tokenizer_is_that_of_the_runs_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find_tokenizer(tmp_path) is None
    for path, found in ((str(MODEL), TOKENIZER), ("no/such", None), ("a b/../..", None), (3, None), ("/etc", None)):
        about = {"configuration": {"actor_rollout_ref": {"model": {"path": path}}}}
        (tmp_path / "run.json").write_text(json.dumps(about))
        assert find_tokenizer(tmp_path) == found
