"""On a CPU the engine keeps to a grammar: SGLang's processes mask the logits of tokens that it forbids."""

from tests.cpu.test_attention import python

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
