"""What a node concludes from its environment; real nodes are tested in tests/e2e/test_nodes.py."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import (
    ClusterError,
    Nodes,
    head,
    interfaces,
    node_options,
    run_worker,
    unclear_interface,
)
from agent_rl.launch.composition import compose
from agent_rl.launch.stopping import StopRequest

GSM8K = Path(__file__).parents[2] / "recipes/gsm8k_calculator"

SLURM = {"SLURM_NNODES": "4", "SLURM_NODEID": "2", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "gpu[07-10]"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"NNODES": "1", **SLURM}, None),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, None),
        ({"RAY_ADDRESS": "10.0.0.1:6379", **SLURM}, None),  # inside a job of a cluster that SLURM's nodes form
        ({"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "host0"}, Nodes(2, 0, "host0", 6379)),
        ({"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "7000"}, Nodes(2, 1, "h", 7000)),
        ({"RAY_ADDRESS": "local", "NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "h"}, Nodes(2, 0, "h")),
        (
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "h", "PET_MASTER_PORT": "7001"},
            Nodes(3, 2, "h", 7001),
        ),
        ({**SLURM, "MASTER_ADDR": "h"}, Nodes(4, 2, "h")),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "3", "MASTER_ADDR": "h"}, Nodes(3, 2, "h")),
    ],
)
def test_the_environment_says_which_node_this_is(environ: dict[str, str], expected: Nodes | None) -> None:
    assert Nodes.from_environment(environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NNODES": "2"}, "NODE_RANK: there are 2 nodes, but no rank is set"),
        ({"NNODES": "2", "NODE_RANK": "2"}, "NODE_RANK: there is no rank 2 among 2 nodes. Set a number from 0"),
        ({"NNODES": "1:4", "NODE_RANK": "0"}, "NNODES: '1:4' is not a number"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "MASTER_ADDR: the variable is not set"),
        ({**SLURM, "SLURM_LOCALID": "1"}, "Set --ntasks-per-node=1"),
        ({"NNODES": "2", "RAY_ADDRESS": "10.0.0.1:6379"}, "RAY_ADDRESS: NNODES is also set"),
    ],
)
def test_a_wrong_environment_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Nodes.from_environment(environ)
    assert message in str(caught.value)


def test_slurm_names_the_first_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"MASTER_ADDR: scontrol could not list the first host of gpu\[07-10\]"):
        Nodes.from_environment(SLURM)
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames gpu[07-10]" ] && printf "gpu07\\ngpu08\\n"')
    (tmp_path / "scontrol").chmod(0o755)
    assert Nodes.from_environment(SLURM) == Nodes(4, 2, "gpu07")


def test_interfaces_that_lead_to_no_other_node_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_address(*addresses: str) -> list[SimpleNamespace]:
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in addresses]
        return [SimpleNamespace(family=family, address=each) for family, each in zip(families, addresses, strict=True)]

    found = {"lo": ["127.0.0.1", "::1"], "docker0": ["172.17.0.1"], "veth12": ["10.1.0.1"], "eth1": ["fe80::1%eth1"],
             "eth0": ["10.0.0.7", "fe80::2%eth0"], "ib0": ["fd00::2"]}  # fmt: skip
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {name: with_address(*each) for name, each in found.items()})
    assert interfaces() == ["eth0", "ib0"]
    assert "(eth0, ib0)" in unclear_interface(interfaces(), {})
    assert unclear_interface(["eth0"], {}) == unclear_interface(interfaces(), {"NCCL_SOCKET_IFNAME": "ib0"}) == ""


def test_a_node_gets_the_sizes_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    config = compose(GSM8K, ["ray_kwargs.ray_init.num_cpus=12", "+ray_kwargs.ray_init.resources={judge: 1}"])
    options = node_options(config, head=False)
    assert {"--num-cpus=12", "--object-store-memory=536870912", '--resources={"judge": 1}'} <= set(options)
    assert "--include-dashboard=False" not in options  # only the head has one
    assert "--include-dashboard=False" in node_options(config, head=True)
    monkeypatch.delenv("VERL_PLATFORM")
    assert node_options(compose(GSM8K), head=True) == []  # Ray finds the GPUs


def test_a_port_that_is_taken_and_a_head_that_does_not_answer_are_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        nodes = Nodes(2, 0, "127.0.0.1", taken.getsockname()[1])
        message = r"is already in use. Set MASTER_PORT to another port"
        with pytest.raises(ClusterError, match=message), head(nodes, [], 0):
            pass
    with pytest.raises(ClusterError, match=r"rank 1: no head answered at \[::1\]:1 within 0 s"):
        run_worker(Nodes(2, 1, "::1", 1), [], 0, StopRequest())
