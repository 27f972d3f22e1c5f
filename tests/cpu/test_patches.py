"""Each patch works, and is still needed: the second half of each pair fails once verl does the thing itself."""

from tests.support.forks import python

GROUP = (
    "import os, socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()\n"
    "os.environ.update(RANK='0', WORLD_SIZE='1', DIST_INIT_METHOD=f'tcp://127.0.0.1:{port}')\n"
    "import verl, torch.distributed as dist\n"
    "from verl.utils.distributed import initialize_global_process_group_ray as init\n"
)


def test_a_process_group_uses_gloo() -> None:
    assert python(GROUP + "init(); print(dist.get_backend())") == "gloo"


def test_gloo_process_group_is_needed() -> None:
    code = GROUP + "try:\n    init.__wrapped__(); print('started')\nexcept Exception as e: print('refused')"
    assert python(code) == "refused"


VALUE_HEAD = (
    "import tempfile, verl, torch\nfrom transformers import AutoConfig\nfrom agent_rl.cpu.tiny_model import *\n"
    "folder = tempfile.mkdtemp()\n"
    "make_model(folder, make_tokenizer(['a'], folder, 260), hidden=16, layers=1, heads=2)\n"
    "from verl.utils import model\n"
    "config = AutoConfig.from_pretrained(folder, num_labels=1, attn_implementation='eager')\n"
    "try: critic = model.load_valuehead_model(folder, torch.float32, config, False)\n"
    "except RuntimeError as e: print('refused')\n"
    "else: print(tuple(critic.score.weight.shape), critic.config._attn_implementation)"
)


def test_a_value_head_gives_one_value_for_each_token_and_has_the_configurations_attention() -> None:
    assert python(VALUE_HEAD) == "(1, 16) eager"


def test_value_head_attention_is_needed() -> None:
    assert python(VALUE_HEAD, plugins="none") == "refused"
