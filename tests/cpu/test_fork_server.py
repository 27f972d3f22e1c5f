"""The server that starts Ray's workers: a fork is what a new interpreter would be, with the libraries imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_rl.cpu import fork_server, forked_python, switch
from tests.support.forks import EXTENDED, FORKS, Mode
from tests.support.processes import wait_until

SERVER = forked_python.SERVER


def fork(folder: Path, code: str, *arguments: str, **environment: str) -> Any:
    """What a script prints as JSON."""
    script = folder / "script.py"
    script.write_text(f"import json, os, sys\nfound = {{}}\n{code}\nprint(json.dumps(found), flush=True)\n")
    done = subprocess.run(
        [sys.executable, "-I", "-S", forked_python.__file__, str(script), *arguments],
        env={**os.environ, "RAY_AUTH_MODE": "token", **environment},
        cwd=folder,
        stdout=subprocess.PIPE,  # ends when the fork does
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


STATE = """
import random, signal, uuid
from pathlib import Path
def threads(pid): return [each.read_text().strip() for each in Path(f"/proc/{pid}/task").glob("*/comm")]
found.update(
    arguments=sys.argv, name=__name__, mine=os.environ.get("MINE"), leaked="OF_THE_SERVER" in os.environ,
    folder=os.getcwd(), path=[*sys.path], leads=os.getpgrp() == os.getpid(), nice=os.nice(0),
    torch="torch" in sys.modules, parent=os.getppid(), verl="verl" in sys.modules or "agent_rl.agents" in sys.modules,
    threads=len(threads("self")), servers=threads(os.getppid()), pid=os.getpid(),
    quits=signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL,
)
from ray._raylet import ObjectRef, get_authentication_mode
found["ray"] = str(get_authentication_mode())
import numpy
found["drawn"] = [random.random(), numpy.random.rand(), str(uuid.uuid4()), ObjectRef.from_random().hex()]
if os.environ.get("MINE"):
    import verl, torch
    found["torch_threads"] = torch.get_num_threads()
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, server: dict[str, str]) -> tuple[Path, Any]:
    """A folder, and what a script in it finds as a fork."""
    folder = tmp_path_factory.mktemp("state")
    return folder, fork(folder, STATE, "--one", "two words", MINE="1", OMP_NUM_THREADS="2", **server)


def test_a_fork_has_arguments_environment_and_folder_of_the_client(state: tuple[Path, Any]) -> None:
    folder, found = state
    assert found["arguments"] == [str(folder / "script.py"), "--one", "two words"]
    assert (found["name"], found["mine"], found["leaked"]) == ("__main__", "1", False)
    assert found["folder"] == str(folder)
    assert (found["leads"], found["nice"], found["quits"]) == (False, os.nice(0), True)
    assert found["torch"]
    assert "agent_rl.cpu.fork_server" in psutil.Process(found["parent"]).cmdline()
    assert not found["verl"]  # what they do when they are imported depends on the worker's environment
    wait_until(lambda: not psutil.pid_exists(found["pid"]))  # Ray asks for its workers by their process ids


def test_threads_are_those_of_an_allocator_and_the_users_number_is_kept(state: tuple[Path, Any]) -> None:
    assert state[1]["threads"] == 1
    assert len(state[1]["servers"]) - state[1]["servers"].count("jemalloc_bg_thd") == 1
    assert state[1]["torch_threads"] == 2


def test_a_fork_has_the_path_ray_and_random_numbers_of_a_new_interpreter(
    tmp_path: Path, server: dict[str, str], state: tuple[Path, Any]
) -> None:
    """Of the server's own environment, in which `RAY_AUTH_MODE` differs, Ray knows nothing."""
    found = fork(tmp_path, STATE, **server)
    plain = fork(tmp_path, STATE, PYTHONPATH=switch.child_environment()["PYTHONPATH"])
    assert [place for place in found["path"] if "ray/thirdparty_files" not in place] == plain["path"]
    assert found["ray"] == plain["ray"] != "0"
    assert not set(found["drawn"]) & set(state[1]["drawn"])


def test_a_leader_of_a_process_group_stays_one_and_what_the_kernel_ends_first_stays_so(
    tmp_path: Path, server: dict[str, str]
) -> None:
    script, client = tmp_path / "script.py", tmp_path / "as_ray.py"
    said = "os.getpgrp() == os.getpid(), open('/proc/self/oom_score_adj').read().strip(), os.nice(0)"
    script.write_text(f"import os; print({said}, flush=True)")
    client.write_text(
        "import os, runpy, sys\nfrom pathlib import Path\n"
        "Path('/proc/self/oom_score_adj').write_text('900'); os.nice(5); sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, str(client), forked_python.__file__, str(script)]
    done = subprocess.run(
        command, env={**os.environ, **server}, start_new_session=True, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == ["True", "900", str(os.nice(0) + 5)]


def test_sglang_compiles_nothing(tmp_path: Path, server: dict[str, str]) -> None:
    code = (
        "from sglang.srt.layers.vocab_parallel_embedding import get_masked_input_and_mask as mask\n"
        "found.update(compiled=hasattr(mask, '_torchdynamo_orig_callable'))"
    )
    assert fork(tmp_path, code, **server) == {"compiled": False}


def test_ray_starts_its_workers_so_unless_the_user_has_chosen_a_python() -> None:
    code = (
        "import os, verl.utils.device as device\nfrom omegaconf import OmegaConf\n"
        "for given in (None, 'mine'):\n"
        "    ray_init = {'runtime_env': {'py_executable': given}}\n"
        "    config = OmegaConf.create({'trainer': {'device': 'cpu'}, 'ray_kwargs': {'ray_init': ray_init}})\n"
        "    device.auto_set_device(config); print(config.ray_kwargs.ray_init.runtime_env.py_executable)"
    )
    for python, expected in (("/env/python", ["$AGENT_RL_WORKER_PYTHON", "mine"]), (None, ["None", "mine"])):
        mode = Mode({**EXTENDED.environment, fork_server.PYTHON: python}, EXTENDED.preload)
        assert FORKS.run(code, mode=mode).stdout.split() == expected


@pytest.mark.parametrize("environment", [{"VERL_PLATFORM": ""}, {"VERL_PLATFORM": "cpu", "RAY_ADDRESS": "a:6379"}])
def test_neither_a_gpu_nor_a_ray_that_runs_already_gets_a_server(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with fork_server.fork_server(os.environ, sys.stderr) as more:
        assert more == {}


def test_what_a_killed_start_of_the_run_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "agent_rl_mine_a").mkdir()
    (tmp_path / "agent_rl_other_a").mkdir()
    with fork_server.fork_server({**os.environ, "RAY_TMPDIR": str(tmp_path), "AGENT_RL_RUN": "mine"}, sys.stderr):
        assert not (tmp_path / "agent_rl_mine_a").exists()
        assert len(list(tmp_path.glob("agent_rl_mine_*"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["agent_rl_other_a"]


WITHOUT = """
found.update(arguments=sys.argv, mine=os.environ["MINE"], path=sys.path, torch="torch" in sys.modules)
"""


def test_without_a_server_it_is_python(tmp_path: Path) -> None:
    for environment in ({}, {SERVER: str(tmp_path / "nothing")}):
        found = fork(tmp_path, WITHOUT, "one", MINE="1", **environment)
        assert found["arguments"] == [str(tmp_path / "script.py"), "one"]
        assert (found["mine"], found["path"][0], found["torch"]) == ("1", str(tmp_path), False)


def test_the_libraries_of_verls_workers_are_imported_already(tmp_path: Path, server: dict[str, str]) -> None:
    code = (
        "before = set(sys.modules)\n"
        "import verl.trainer.main_ppo, verl.trainer.ppo.v1.trainer_sync, verl.trainer.ppo.v1.agent_loop_tq\n"
        "import verl.workers.engine_workers, verl.experimental.reward_loop\n"
        "import verl.workers.rollout.sglang_rollout.async_sglang_server\n"
        "found['new'] = [name.split('.')[0] for name in set(sys.modules) - before]"
    )
    new = fork(tmp_path, code, **server)["new"]
    libraries = [name for name in new if name not in ("verl", "agent_rl")]
    assert len(libraries) < 200, {name: libraries.count(name) for name in libraries}
