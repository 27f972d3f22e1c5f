"""Runs commands on hostile machines: `make hostile`.

    python -m benchmarks.hostile  # writes docs/reference/hostile.json

A machine has no network, a long TMPDIR, a read-only home folder, a small /dev/shm, or variables that name a proxy which
does not answer. A command passes if it ends with status 0, its result is complete, and it leaves no process and no file
in /tmp and /dev/shm that it does not leave on an ordinary machine. It may also refuse the machine at once, with the
variable and the remedy. Each case runs in namespaces of its own (`unshare`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.run_folder import machine, versions
from agent_rl.trajectory.run_files import read_metrics
from benchmarks.namespaces import ROOT, execute_inside, mount_empty, names_in, other_processes
from benchmarks.training_run import LEFT_S, RECIPE
from tests.e2e.training import overrides
from tests.evaluation.experiments.tiny_twins import tiny_twin
from tests.rewards.judge.server import judging
from tests.rewards.service.process import Service
from tests.support.http_faults import FaultyServer
from tests.support.interrupts import heed_interrupts

RESULTS = ROOT / "docs/reference/hostile.json"
WORK = ROOT / "outputs/hostile"
LIMIT_S = 900
LONG = "long"
"""The folder in /tmp that contains the long TMPDIR."""
ROWS = 8
AGENT_RL = (sys.executable, "-m", "agent_rl.cli.main")


def _no_network() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _long_tmpdir() -> None:
    folder = Path(f"/tmp/{LONG}").joinpath(60 * "x")  # of at most 75 bytes; longer ones are refused
    folder.mkdir(parents=True)
    os.environ["TMPDIR"] = str(folder)


def _read_only_home() -> None:
    home = WORK / "home"
    home.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", home], check=True)
    os.environ["HOME"] = str(home)
    for name in ("XDG_CACHE_HOME", "HF_HOME"):
        os.environ.pop(name, None)


def _small_shm() -> None:
    subprocess.run(["mount", "-o", "remount,size=1m", "/dev/shm"], check=True)


def _proxy() -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = "http://127.0.0.1:9"


MACHINES: dict[str, Callable[[], None]] = {
    "ordinary": lambda: None,
    "no network": _no_network,
    "long TMPDIR": _long_tmpdir,
    "read-only HOME": _read_only_home,
    "small /dev/shm": _small_shm,
    "proxy only": _proxy,
}


class RefusedError(Exception):
    """The command names the variable of the machine that it cannot work with, and a remedy."""


def _call(folder: Path, *words: object) -> str:
    """Run the command to its end, and return what it printed, or raise an error with the last lines."""
    with open(folder / "printed", "wb") as printed:
        done = subprocess.run(
            [*AGENT_RL, *map(str, words)], stdout=subprocess.PIPE, stderr=printed, text=True, timeout=LIMIT_S,
            cwd=ROOT, check=False, preexec_fn=heed_interrupts,
        )  # fmt: skip
    if done.returncode:
        lines = (folder / "printed").read_text().splitlines()
        if done.returncode == 2 and re.match(r"error: [A-Z]+: .*\. Set ", lines[-1]):
            raise RefusedError(lines[-1].removeprefix("error: ").replace(f"{ROOT}/", ""))
        raise AssertionError(f"status {done.returncode}: {' '.join(lines[-3:])[-300:]}")
    return done.stdout


def _train(folder: Path) -> None:
    words = overrides(folder, RECIPE / "model", trainer__rollout_data_dir="null")
    _call(folder, "train", RECIPE, *words)
    assert [line["step"] for line in read_metrics(folder)] == [1, 2]


def _rows(folder: Path) -> Path:
    problems, _ = arithmetic.train_test(0, ROWS, 1)
    path = folder / "rows.parquet"
    write_parquet([arithmetic.to_row(each, "test", at) for at, each in enumerate(problems)], path)
    return path


def _eval(policy: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        words = ("--data", _rows(folder), "--tools", "tool_configs/calculator.yaml", "--model", RECIPE / "model")
        out = folder / "evaluation"
        _call(folder, "eval", *words, "--out", out, f"policy={policy}", "sampling.max_response_tokens=192")
        assert len((out / "trajectories.jsonl").read_text().splitlines()) == ROWS
        assert not json.loads((out / "summary.json").read_text())["unscored"]

    return run


def _sft(folder: Path) -> None:
    _call(folder, "sft", tiny_twin("text_to_sql", folder))
    assert list((folder / "world").rglob("model.safetensors"))


def _reward_serve(folder: Path) -> None:
    config = folder / "service.yaml"
    shutil.copy(ROOT / "recipes/reward_api/service.yaml", config)
    shutil.copy(ROOT / "recipes/reward_api/rules.py", folder)
    with Service(config) as service:
        body = {"solution_str": "It is 4.", "ground_truth": "4", "data_source": "sums"}
        answer = httpx.post(f"{service.url}/get_reward", json=body, timeout=60, trust_env=False)  # without the proxy
        assert answer.is_success, answer.text
        assert service.end(signal.SIGTERM) == -signal.SIGTERM


def _rm_eval(folder: Path) -> None:
    pair = {"question": "q", "response_A": "a", "response_B": "b", "label": "A>B"}
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps({**pair, "pair_id": str(at)}) + "\n" for at in range(ROWS)))
    with FaultyServer(default=judging(lambda body: "<preference>A</preference>")) as server:
        said = _call(folder, "rm", "eval", "judge", file, "--endpoint", server.url, "--out", folder, "--json")
    report = json.loads(said)
    assert (report["samples"], report["failed"]) == (ROWS, 0), said


def _gateway_check(folder: Path) -> None:
    driver = "tests/conformance/drivers/ours.py:OurDriver"
    found = json.loads(_call(folder, "gateway", "check", "--driver", driver, "--json"))
    assert found
    assert {each["status"] for each in found} == {"passes"}, found


COMMANDS: dict[str, Callable[[Path], None]] = {
    "train": _train,
    "eval policy=sglang": _eval("sglang"),
    "eval policy=local": _eval("local"),
    "sft": _sft,
    "reward serve": _reward_serve,
    "rm eval": _rm_eval,
    "gateway check": _gateway_check,
}


def execute(machine: str, command: str) -> dict[str, Any]:
    """Return the result of a case; this process is in namespaces of the case's own."""
    folder = WORK / re.sub(r"\W", "_", f"{machine}_{command}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mount_empty()
    MACHINES[machine]()
    os.environ |= {"VERL_PLATFORM": "cpu", "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
    began, problem, refusal = time.monotonic(), "", ""
    try:
        COMMANDS[command](folder)
    except RefusedError as error:
        refusal = str(error)
    except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
        problem = str(error)[:500] or repr(error)
    seconds = round(time.monotonic() - began, 1)
    places = {"/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")}
    left = [process.name() for process in other_processes(limit_s=LEFT_S)]
    left += [name for place in sorted(places) for name in names_in(place) if name != LONG]
    return {"seconds": seconds, "problem": problem, "refusal": refusal, "left": left}


def main() -> None:
    """Execute every case, and write the result."""
    cases: dict[str, dict[str, Any]] = {}
    for command in COMMANDS:
        for name in MACHINES:
            words = ("benchmarks.hostile", "--inside", name, command)
            done = execute_inside(*words, has_network=name != "no network")
            done.check_returncode()
            case = cases[f"{name}: {command}"] = json.loads(done.stdout)
            if more := {*case["left"]} - {*cases[f"ordinary: {command}"]["left"]}:
                case["problem"] += f" left: {', '.join(sorted(more))}"
            print(time.strftime("%H:%M:%S"), name, command, case, flush=True)
    record = {"command": "make hostile", "versions": versions(), "machine": machine(RECIPE / "model"), "cases": cases}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(execute(*sys.argv[2:])))
    else:
        main()
