"""Without flash-attn verl's critic loads and log-probs are computed many at a time; verl alone would do neither."""

from tests.forks import python

VALUE_HEAD = (
    "import tempfile, verl, torch\nfrom transformers import AutoConfig\nfrom agent_rl.cpu.tiny_model import *\n"
    "folder = tempfile.mkdtemp()\n"
    "make_model(folder, make_tokenizer(['a'], folder, 260), hidden=16, layers=1, heads=2)\n"
    "from verl.utils import model\n"
    "config = AutoConfig.from_pretrained(folder, num_labels=1)\n"
    "try: print(tuple(model.load_valuehead_model(folder, torch.float32, config, False).score.weight.shape))\n"
    "except RuntimeError as e: print('refused')"
)


def test_a_value_head_gives_one_value_for_each_token() -> None:
    assert python(VALUE_HEAD) == "(1, 16)"


def test_value_head_attention_is_needed() -> None:
    assert python(VALUE_HEAD, plugins="none") == "refused"


LOG_PROBS = (
    "import verl, torch\nfrom verl.utils import torch_functional as f\n"
    "torch.manual_seed(0)\n"
    "logits, labels = torch.randn(2500, 11, requires_grad=True), torch.randint(0, 11, (2500,))\n"
    "found, own = f.logprobs_from_logits(logits, labels), getattr(f.logprobs_from_logits_v2, '__wrapped__', None)\n"
)


def test_log_probs_and_gradients_equal_verls() -> None:
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


def test_verl_would_compute_log_probs_one_token_at_a_time() -> None:
    code = "import inspect; print('for logit in logits' in inspect.getsource(f.logprobs_from_logits_v2))"
    assert python(LOG_PROBS + code, plugins="none") == "True"
