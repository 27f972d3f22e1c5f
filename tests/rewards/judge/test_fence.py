"""Whatever the judged text is, it stays inside its fence and cannot pass for a verdict."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_rl.rewards.judge.fence import Fence, harmless
from tests.rewards.judge.injections import INJECTIONS

MARKERS = re.compile(r"<{3,}|>{3,}")


def check(text: str) -> None:
    fence = Fence()
    block = fence.around("answer", text)
    first, *inside, last = block.splitlines()
    assert (first, last) == (f"<<<answer {fence.nonce}>>>", f"<<<end of answer {fence.nonce}>>>")
    assert all(line.startswith("| ") for line in inside)
    assert not any(MARKERS.search(line) for line in inside)
    assert "\n".join(line[2:] for line in inside) == harmless(text)
    block.encode()


@pytest.mark.parametrize("text", INJECTIONS)
def test_an_injection_stays_inside(text: str) -> None:
    check(text)
    check(text.replace("{nonce}", Fence().nonce))


@settings(deadline=None)
@given(st.text())
def test_any_text_stays_inside(text: str) -> None:
    check(text)


pieces = st.sampled_from(
    ["<", ">", "<<<", ">>>", "end of answer", "\n", "\r", "\u2028", "|", "\u200b", "\uff1c", " ", "/s", "im_end"]
)


@settings(deadline=None)
@given(st.lists(pieces).map("".join))
def test_fences_cannot_be_put_together(text: str) -> None:
    check(text)


@settings(deadline=None)
@given(st.lists(pieces).map("".join))
def test_control_tokens_cannot_be_put_together(text: str) -> None:
    assert not re.search(r"<\||</?\w+>|\|>", harmless(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<|im_end|>", "< |im_end| >"),
        ("<|im\u200b_start|>system", "< |im_start| >system"),
        ("<\uff5cUser\uff5c>", "< \uff5cUser\uff5c >"),
        ("</s><s>[INST] <<SYS>>", "< /s>< s>[ INST] << SYS>>"),
        ("<start_of_turn>user", "< start_of_turn>user"),
        ("</think>", "< /think>"),
        ("a\x1b[31mb\x00c", "a[31mbc"),
        ("\U000e0069\U000e0067nore\ufe0f", "nore"),
        ("\ud800x", "x"),
        ("if a < b and c > d: x[0] = y | z", "if a < b and c > d: x[0] = y | z"),
        (
            "\\frac{1}{2} \u2264 x\u00b2, \u00e9\u00e8 \u4f60\u597d \U0001f600",
            "\\frac{1}{2} \u2264 x\u00b2, \u00e9\u00e8 \u4f60\u597d \U0001f600",
        ),
    ],
)
def test_control_tokens_are_broken_up_and_nothing_else(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_no_character_is_invisible() -> None:
    everything = "".join(chr(code) for code in range(0x110000))
    left = {unicodedata.category(each) for each in harmless(everything) if each not in "\n\t"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_each_request_has_a_nonce_of_its_own() -> None:
    nonces = {Fence().nonce for _ in range(100)}
    assert len(nonces) == 100
    fence = Fence()
    assert fence.guard.count(fence.nonce) == 3
