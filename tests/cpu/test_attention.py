"""Attention for the whole batch gives what SGLang's own loop gives; SGLang's processes load it through its plugins."""

import os

import pytest

from agent_rl.cpu import switch as cpu
from tests.support.forks import ROOT, Forks

COMPARE = """
import torch
from types import SimpleNamespace
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.plugins import load_plugins
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend as Backend
load_plugins()
ours, own = Backend._run_sdpa_forward_decode, Backend._run_sdpa_forward_decode.__wrapped__
backend = object.__new__(Backend)

torch.manual_seed(0)
def check(heads, key_heads, size, lens):
    lens = torch.tensor(lens)
    k, v = torch.randn(500, key_heads, size), torch.randn(500, key_heads, size)
    table = torch.randint(0, 500, (9, 64), dtype=torch.int32)
    rows = torch.randperm(9)[: len(lens)]
    options = dict(scaling=0.3, enable_gqa=heads != key_heads)
    q = torch.randn(len(lens), heads, size)
    backend.req_to_token_pool, backend.use_sliding_window_kv_pool = SimpleNamespace(req_to_token=table), False
    batch = SimpleNamespace(forward_mode=ForwardMode.DECODE, seq_lens=lens, req_pool_indices=rows)
    batch.req_to_token_pool = backend.req_to_token_pool  # 0.5.12 asks the batch, 0.5.13 the backend
    backend.init_forward_metadata(batch)
    found = [attend(backend, q, torch.empty_like(q), k, v, table, rows, lens, **options) for attend in (ours, own)]
    torch.testing.assert_close(*found)

check(4, 4, 8, [5, 60, 17])
check(4, 2, 16, [1, 33])
check(6, 2, 8, [40, 3, 9])
check(2, 1, 8, [12])
print("same")
"""

SGLANG = Forks(
    "import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler",
    {**os.environ, **cpu.ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(ROOT), *cpu.stand_ins()])},
)


def python(code: str) -> str:
    """The last line that the code prints where SGLang is imported as its own processes import it."""
    done = SGLANG.run(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("limit", ["", "import agent_rl.cpu.attention as a; a.MAX_PADDED = 0\n"])
def test_the_whole_batch_at_once_gives_the_same(limit: str) -> None:
    assert python(limit + COMPARE) == "same"
