"""Each patch works, and is still needed: the second half of each pair fails once verl does the thing itself."""

from tests.forks import python

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
