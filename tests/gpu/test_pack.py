"""What is packed for a machine without an index, how run.sh finds it, and that it is enough there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gpu.pack import TRIMMED, _is, on_machine, selection

ROOT = Path(__file__).parents[2]
PLACES = (os.environ.get("AGENT_RL_GPU_ENV"), ROOT / ".venv-sglang-0.5.13", ROOT / ".venv-gpu")
ENVIRONMENT = next((Path(each) / "bin/python" for each in PLACES if each and Path(each, "bin/python").exists()), None)
"""The Python of a complete environment with `agent-rl[sglang]`."""

REQUIRES = {
    "agent-rl": ["pyyaml>=6", "sglang==0.5.13; extra == 'sglang'", "ruff; extra == 'dev'"],
    "sglang": ["torch==2.11.0", "transformers==5.8.1", "tilelang", "nvidia-ml-py", "winloop; sys_platform == 'win32'"],
    "torch": ["sympy", "nvidia-nccl-cu13==2.28.9", "triton==3.6.0"],
    "tilelang": ["z3-solver"],
    "transformers": ["tokenizers<=0.23.0"],
}  # fmt: skip
HAVE = {"torch": "2.11.0+cu130", "triton": "3.6.0", "pyyaml": "6.0.3", "transformers": "5.17.0", "tokenizers": "0.23.1"}


def carried(have: Mapping[str, str]) -> list[str]:
    return selection(have, lambda name: REQUIRES.get(name, []))


def test_what_the_machine_has_in_a_version_that_fits_is_not_carried() -> None:
    assert carried(HAVE) == ["agent-rl", "nvidia-ml-py", "sglang", "tokenizers", "transformers"]
    assert carried({**HAVE, "pyyaml": "5.4"}) == [
        "agent-rl",
        "nvidia-ml-py",
        "pyyaml",
        "sglang",
        "tokenizers",
        "transformers",
    ]
    assert carried({**HAVE, "transformers": "5.8.1", "tokenizers": "0.22.2"}) == ["agent-rl", "nvidia-ml-py", "sglang"]


def test_a_machine_without_the_torch_that_the_engine_wants_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"the machine must have torch==2\.11\.0, which is too large"):
        carried({**HAVE, "torch": "2.10.0"})


def test_a_freeze_is_read_and_what_has_no_version_is_skipped() -> None:
    freeze = "torch==2.11.0+cu130\nPyYAML==6.0.3\n-e git+x#egg=own\nmine @ file:///x.whl\n# a comment\n"
    assert on_machine(freeze) == {"torch": "2.11.0+cu130", "pyyaml": "6.0.3"}


def test_headers_that_kernels_are_compiled_with_stay() -> None:
    for kept in ("flashinfer/data/include/x.cuh", "flashinfer/data/cutlass/include/x.h", "tvm_ffi/include/x.h"):
        assert not _is(kept, TRIMMED)
    for left_out in ("sgl_kernel/flash_ops.abi3.so", "pyarrow/include/x.h", "pandas/tests/x.py", "ray/jars/x.jar"):
        assert _is(left_out, TRIMMED)


@pytest.fixture
def sibling(tmp_path: Path) -> Path:
    """A folder with run.sh and a plan that prints what it is started with."""
    folder = tmp_path / "tests/gpu"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "tests/gpu/run.sh", folder)
    (tmp_path / "tests/__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "plan.py").write_text(
        "import json, os\nprint(json.dumps([os.environ['PYTHONPATH'], os.environ.get('AGENT_RL_GPU_OVERRIDES', '')]))\n"
    )
    return folder


def started(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environ}
    return subprocess.run(["bash", folder / "run.sh", "out"], env=env, capture_output=True, text=True, check=False)


def packed(folder: Path, version: str) -> None:
    site = folder.parent / "site"
    site.mkdir()
    (site / "python-version").write_text(f"{version}\n")
    subprocess.run(["tar", "-C", site, "-cJf", folder / "site.tar.xz.00", "."], check=True)


def test_the_packed_site_comes_before_the_users_path_which_stays(sibling: Path) -> None:
    root = sibling.parents[1]
    assert json.loads(started(sibling, PYTHONPATH="/mine").stdout) == [f"{root}:/mine", ""]
    packed(sibling, "{}.{}".format(*sys.version_info))
    path, overrides = json.loads(started(sibling, PYTHONPATH="/mine", AGENT_RL_GPU_OVERRIDES="a=1").stdout)
    assert path == f"{root}:{sibling}/site:/mine"
    assert re.findall(r"\+\+(\w+)[\w.]+[.]attention_backend=triton", overrides) == ["actor_rollout_ref", "reward"]
    assert overrides.endswith(" a=1")
    assert json.loads(started(sibling, VERL_PLATFORM="cpu").stdout) == [f"{root}:{sibling}/site", ""]


def test_a_site_of_another_python_is_refused(sibling: Path) -> None:
    packed(sibling, "3.9")
    done = started(sibling)
    assert done.returncode == 1
    assert "site is for Python 3.9, and python3 is" in done.stderr


IMPORTS = """
import importlib, json, sys
from pathlib import Path
from tests.gpu.faked_cuda import MODULES, fake, why
fake(Path(sys.argv[1]))
print(json.dumps({name: why(lambda name=name: importlib.import_module(name)) for name in MODULES}))
"""
"""What a run on GPUs imports, with CUDA faked."""
OF_TORCH = re.compile(
    r"(torch|triton|ninja|cupy-cuda13x|numpy|nvidia-(?!ml-|cudnn-f|cutlass|nvvm|cuda-(nvcc|tile|crt))[\w-]+|"
    r"cuda-(bindings|pathfinder|toolkit)|sympy|mpmath|networkx|jinja2|markupsafe|fsspec|filelock|typing[-_]extensions)==",
    re.IGNORECASE,
)
"""What a machine with torch has, in the lines of `pip freeze`."""


@pytest.mark.recipes
@pytest.mark.skipif(ENVIRONMENT is None, reason="no environment with agent-rl[sglang]: AGENT_RL_GPU_ENV names one")
def test_the_packed_site_is_enough_on_a_machine_with_torch_alone(tmp_path: Path) -> None:
    """The pieces without an engine, and a GPU run's imports, where there are only HAVE's packages and the site."""
    python = str(ENVIRONMENT)
    listed = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listed.splitlines() if OF_TORCH.match(line)]
    have, site, machine = tmp_path / "have.txt", tmp_path / "site", tmp_path / "machine"
    have.write_text("\n".join([*lines, "transformers==5.17.0", "tokenizers==0.23.1"]))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for module, folder in (("pack", site), ("bare_machine", machine)):
        subprocess.run([python, "-m", f"tests.gpu.{module}", have, folder], cwd=ROOT, env=env, check=True)
    names = ["environment", "log_probs", "fused_loss", "update"]
    command = [machine / "bin/python3", "-m", "tests.gpu.plan", tmp_path / "out", "--only", *names]
    subprocess.run(command, cwd=ROOT, env={**env, "PYTHONPATH": f"{ROOT}:{site}"}, check=False)
    answers = json.loads((tmp_path / "out/report.json").read_text())
    assert {name: answer["status"] for name, answer in answers.items()} == dict.fromkeys(names, "ok"), answers
    assert answers["environment"]["figures"]["transformers"] == "5.8.1"  # not the machine's
    imports = [machine / "bin/python3", "-c", IMPORTS, tmp_path]
    done = subprocess.run(
        imports, cwd=ROOT, env={**env, "PYTHONPATH": f"{ROOT}:{site}"}, capture_output=True, text=True
    )
    failed = [name for name, why in json.loads(done.stdout.splitlines()[-1]).items() if why]
    assert failed == ["sgl_kernel.flash_attn"]  # left out: run.sh chooses another attention
