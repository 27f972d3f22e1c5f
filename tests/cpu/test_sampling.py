"""Tokens are sampled with their probabilities, by sums, and the engine keeps to a grammar, in SGLang's processes."""

import json

import torch

from agent_rl.cpu import sampling
from tests.cpu.test_attention import python

LOADED = """
import json, torch
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.layers import sampler
draw = sampler.sampling_from_probs_torch
torch.manual_seed(0)
"""


def test_tokens_come_with_their_probabilities() -> None:
    """20,000 draws from each of two distributions: four standard deviations are at most 0.0142."""
    code = """
probs = torch.tensor([[0.0, 0.5, 0.0, 0.3, 0.2, 0.0], [0.98, 0.0, 0.01, 0.0, 0.0, 0.01]])
drawn = draw(probs.repeat_interleave(20_000, 0))
print(drawn.dtype, json.dumps([(rows.bincount(minlength=6) / 20_000).tolist() for rows in drawn.view(2, -1)]))
"""
    kind, _, found = python(LOADED + code).partition(" ")
    assert kind == "torch.int32"
    for got, expected in zip(json.loads(found), [[0, 0.5, 0, 0.3, 0.2, 0], [0.98, 0, 0.01, 0, 0, 0.01]], strict=True):
        assert all(abs(share - wanted) < 0.0142 for share, wanted in zip(got, expected, strict=True))
        assert [share == 0 for share in got] == [wanted == 0 for wanted in expected]


def test_rows_of_a_large_vocabulary_are_drawn_each_for_itself() -> None:
    code = """
from agent_rl.cpu import sampling
sampling.AT_A_TIME = 3 * 1000
wanted = torch.randint(0, 1000, (64,))
found = draw(torch.nn.functional.one_hot(wanted, 1000).float())
print(bool((found == wanted).all()) and len(set(draw(torch.ones(64, 1000) / 1000).tolist())) > 50)
"""
    assert python(LOADED + code) == "True"


def test_what_is_no_probability_is_refused_as_by_torch() -> None:
    code = """
try:
    draw(torch.tensor([[0.5, float("nan")]]))
except RuntimeError as error:
    print(error)
"""
    assert "inf" in python(LOADED + code)


def test_requests_with_a_seed_are_left_to_sglang() -> None:
    seeds = torch.tensor([3, 4])
    found = sampling.sample(lambda probs, sampling_seed: sampling_seed, torch.ones(2, 5) / 5, sampling_seed=seeds)
    assert found is seeds


MASK = """
import torch
from xgrammar import allocate_token_bitmask
from sglang.srt.plugins import load_plugins
from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar as Grammar
load_plugins()
logits, mask = torch.ones(2, 70), allocate_token_bitmask(2, 70)
mask[1] = 0
mask[1, 1] = 0b101  # tokens 32 and 34
Grammar.apply_vocab_mask(None, logits, mask)
print([int(row.isfinite().sum()) for row in logits], logits[1].isfinite().nonzero().flatten().tolist())
"""

IS_NEEDED = """
import torch
from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar as Grammar
try:
    Grammar.apply_vocab_mask(None, torch.ones(1, 32), torch.zeros(1, 1, dtype=torch.int32))
except RuntimeError as error:
    print(error)
"""


def test_forbidden_tokens_are_masked() -> None:
    assert python(MASK) == "[70, 2] [32, 34]"


def test_sglangs_own_masking_does_not_run_on_a_cpu() -> None:
    assert python(IS_NEEDED) == "Unsupported device: cpu"
