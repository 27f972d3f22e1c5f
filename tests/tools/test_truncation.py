"""What the policy is shown of a long result: within the limit, in whole characters, with a note of what was cut."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from agent_rl.errors import ConfigError
from agent_rl.tools.truncation import ResultLimit, truncate, truncate_tokens

CORPUS = ["The quick brown fox jumps over the lazy dog. größer 日本語 🧮\n" * 3, "...(123456 characters cut)..."]


class Counted:
    """A tokenizer with the methods of transformers' ones, which notes how much it was asked to encode."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.characters = 0

    def encode(self, text, *, add_special_tokens=True):
        assert not add_special_tokens
        self.characters += len(text)
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids):
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return Counted(tokenizer)


def byte_fallback():
    """As Llama 2's: a space in front of every text, and bytes for what is not in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog ".replace(" ", "▁")] * 3, trainer)
    return Counted(tokenizer)


TOKENIZERS = {"byte-level": byte_level(), "byte-fallback": byte_fallback()}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    made = TOKENIZERS[request.param]
    made.characters = 0
    return made


def count(tokenizer, text):
    return len(tokenizer.encode(text, add_special_tokens=False))


def parts(text, cut):
    """Head and tail of what was cut; the note must tell the truth."""
    match = re.fullmatch(r"(.*)\.\.\.\((\d+) characters cut\)\.\.\.(.*)", cut, re.DOTALL)
    head, number, tail = match.groups()
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(number) + len(tail) == len(text)
    return head, tail


@pytest.mark.parametrize(
    ("limit", "side", "text"),
    [
        (None, "middle", "0123456789"),
        (10, "middle", "0123456789"),
        (5, "middle", "012...(5 characters cut)...89"),
        (1, "middle", "0...(9 characters cut)..."),
        (0, "left", "...(10 characters cut)..."),
        (3, "left", "...(7 characters cut)...789"),
        (3, "right", "012...(7 characters cut)..."),
    ],
)
def test_truncation_says_what_it_cut(limit, side, text):
    assert truncate("0123456789", limit, side) == text


def test_short_text_is_not_tokenized_and_what_is_within_the_limit_untouched(tokenizer):
    assert truncate_tokens("日本語" * 10, 91, tokenizer) == "日本語" * 10
    assert tokenizer.characters == 0
    text = "größer 日本語 🧮"
    tokens = count(tokenizer, text)
    assert [truncate_tokens(text, limit, tokenizer) == text for limit in (tokens, tokens - 1)] == [True, False]


@pytest.mark.parametrize("side", ["left", "middle", "right"])
def test_head_and_tail_are_kept_and_the_limit_is_used(tokenizer, side):
    text = "".join(f"{number} the quick brown fox\n" for number in range(300))
    cut = truncate_tokens(text, 100, tokenizer, side)
    assert 90 <= count(tokenizer, cut) <= 100
    head, tail = parts(text, cut)
    assert (bool(head), bool(tail)) == {"left": (False, True), "middle": (True, True), "right": (True, False)}[side]
    if side == "middle":
        assert 0.5 < count(tokenizer, head) / count(tokenizer, tail) < 2


@given(
    name=st.sampled_from(sorted(TOKENIZERS)),
    text=st.text(st.one_of(st.sampled_from("ab \n日本🧮\u0301\ufffd<0x"), st.characters(exclude_categories=["Cs"]))),
    repeats=st.integers(1, 40),
    limit=st.integers(32, 80),
    side=st.sampled_from(["left", "middle", "right"]),
)
def test_any_text_stays_within_any_limit_in_whole_characters(name, text, repeats, limit, side):
    tokenizer, text = TOKENIZERS[name], text * repeats
    cut = truncate_tokens(text, limit, tokenizer, side)
    if cut == text:
        assert count(tokenizer, text) <= limit
        return
    assert count(tokenizer, cut) <= limit
    parts(text, cut)


@pytest.mark.parametrize("piece", ["x", " ", "日", "the quick "])
def test_huge_text_costs_what_a_long_one_does(tokenizer, piece):
    text = piece * (100_000_000 // len(piece.encode()))
    started = time.process_time()
    cut = truncate_tokens(text, 256, tokenizer)
    assert time.process_time() - started < 5
    assert tokenizer.characters <= 256 * 16 * 2 + 256 * 16 * 4
    assert count(tokenizer, cut) <= 256
    parts(text, cut)


def test_both_limits_hold():
    tokenizer = TOKENIZERS["byte-level"]
    limit = ResultLimit(chars=1000, tokens=50, tokenizer=tokenizer)
    assert count(tokenizer, limit.cut("0123456789" * 1000)) <= 50
    assert ResultLimit().cut("a" * 10_000) == "a" * 10_000
    with pytest.raises(ConfigError, match="truncate_side: unknown value 'both'"):
        ResultLimit(chars=3, side="both")
