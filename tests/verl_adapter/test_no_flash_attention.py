"""Without flash-attn models load and sequences are packed; log-probs are computed many at a time."""

from pathlib import Path

import pytest
import torch

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.no_flash_attention import flash_attn_func, flash_attn_varlen_func
from agent_rl.verl_adapter.patches import hooks
from tests.support.forks import python


def test_packed_sequences_are_computed_as_single_ones_by_every_model_of_a_recipe() -> None:
    code = Path(__file__).with_name("packed_sequences.py").read_text()
    assert python(code, plugins="none") == "[(-1, -1), (-1, 0)]"


def test_transformers_would_ask_the_hub() -> None:
    code = (
        "from transformers import Qwen2Config, Qwen2ForCausalLM\n"
        "try: Qwen2ForCausalLM._from_config(Qwen2Config(hidden_size=8), attn_implementation='flash_attention_2')\n"
        "except ImportError as error: print(error)"
    )
    assert "FlashAttention2 has been toggled on" in python(code, plugins="none")


@pytest.mark.parametrize("platform", ["", "cpu"])
def test_only_a_run_on_gpus_has_torchs_kernel(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", platform)
    own = {"transformers.modeling_flash_attention_utils", "verl.models.transformers.qwen2_vl"}
    assert own & {module for module, _ in hooks()} == (set() if platform else own)


def test_a_window_reaches_the_kernel_and_sequences_of_equal_length_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *lengths: object, **options: object) -> torch.Tensor:
        calls.append(
            (q.shape, [each.tolist() if isinstance(each, torch.Tensor) else each for each in lengths], options)
        )
        return q

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 5, 4, 8)
    assert flash_attn_func(q, k, k, causal=True, window_size=(6, 6)).shape == q.shape
    options = {"scale": None, "window_size": (6, 0)}
    assert calls == [((6, 4, 8), [[0, 3, 6], [0, 5, 10], 3, 5], options)]


@pytest.mark.parametrize("option", [{"dropout_p": 0.1}, {"softcap": 30.0}, {"s_aux": torch.ones(2)}])
def test_what_the_kernel_does_not_have_is_refused(option: dict[str, float]) -> None:
    lengths = torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(
        ConfigError, match=r"attn_implementation: the model has .* Install flash-attn, or set the key to eager"
    ):
        flash_attn_varlen_func(*[torch.ones(3, 2, 8)] * 3, lengths, lengths, 3, 3, **option)


LOG_PROBS = (
    "import verl, torch\nfrom verl.utils import torch_functional as f\n"
    "torch.manual_seed(0)\n"
    "logits, labels = torch.randn(2500, 11, requires_grad=True), torch.randint(0, 11, (2500,))\n"
    "found, own = f.logprobs_from_logits(logits, labels), getattr(f.logprobs_from_logits_v2, '__wrapped__', None)\n"
)


def test_log_probs_and_gradients_equal_verls_which_it_would_compute_one_token_at_a_time() -> None:
    code = (
        "expected = own(logits, labels)\n"
        "some = torch.arange(2500) % 3 == 0\n"  # of a mask: prompts and observations have no gradient
        "gradients = [torch.autograd.grad(value[some].sum(), logits)[0] for value in (found, expected)]\n"
        "torch.testing.assert_close(found, expected)\ntorch.testing.assert_close(*gradients)\n"
        "batch = logits[None].bfloat16().detach().requires_grad_()\n"
        "exact = batch.double().log_softmax(-1).gather(-1, labels[None, :, None])[..., 0]\n"
        "found = f.logprobs_from_logits_v2(batch, labels[None])\n"
        "gradients = [torch.autograd.grad(value.sum(), batch)[0] for value in (found, exact.float())]\n"
        "torch.testing.assert_close(found, exact.float())\ntorch.testing.assert_close(*gradients)\n"
        "print(found.dtype, found.shape == labels[None].shape)"
    )
    assert python(LOG_PROBS + code) == "torch.float32 True"
    code = (
        "calls, reduce = [], torch.logsumexp\n"
        "torch.logsumexp = lambda *values, **options: calls.append(1) or reduce(*values, **options)\n"
        "f.logprobs_from_logits_v2(logits, labels)\nprint(len(calls))"
    )
    assert python(LOG_PROBS + code, plugins="none") == "2500"
