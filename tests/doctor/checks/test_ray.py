import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_rl.doctor.checks import ray
from agent_rl.doctor.machine import Machine
from agent_rl.preflight.check import Finding, Status
from tests.doctor.conftest import MakeCase, node_facts, only, refused, with_gpus

SECOND = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "host0"}
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which something answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def note(folder: Path, address: str) -> dict[str, str]:
    """What `ray start --head` leaves behind."""
    (folder / "ray").mkdir()
    (folder / "ray" / "ray_current_cluster").write_text(address)
    return {"RAY_TMPDIR": str(folder)}


def test_a_machine_without_a_ray_cluster_passes(make_case: MakeCase, tmp_path: Path) -> None:
    assert only(ray.ray_cluster(make_case(environ={"RAY_TMPDIR": str(tmp_path)}))).status is Status.OK


def test_an_address_where_nothing_answers(make_case: MakeCase, silent: int, listening: int) -> None:
    finding = only(ray.ray_cluster(make_case(environ={"RAY_ADDRESS": f"127.0.0.1:{silent}"}, on_cpu=False)))
    assert finding.status is Status.PROBLEM
    assert "nothing answers" in finding.text
    for address in (f"127.0.0.1:{listening}", f"ray://127.0.0.1:{listening}", f"http://127.0.0.1:{listening}/"):
        finding = only(ray.ray_cluster(make_case(environ={"RAY_ADDRESS": address}, on_cpu=False)))
        assert finding.status is Status.OK, address


def test_the_launcher_starts_ray_on_several_nodes(make_case: MakeCase) -> None:
    finding = only(ray.ray_cluster(make_case(environ=SECOND, on_cpu=False)))
    assert (finding.status, "host0:6379" in finding.text) == (Status.OK, True)


def test_a_ray_that_runs_here_would_be_joined(make_case: MakeCase, tmp_path: Path, listening: int) -> None:
    environ = note(tmp_path, f"127.0.0.1:{listening}")
    assert only(ray.ray_cluster(make_case(environ=environ, on_cpu=False))).status is Status.WARNING
    given = make_case({"ray_kwargs.ray_init.num_cpus": 4}, environ=environ, on_cpu=False)
    finding = only(ray.ray_cluster(given))
    assert finding.status is Status.PROBLEM
    assert "Ray refuses num_cpus then" in finding.text
    own = make_case(environ={**environ, "RAY_ADDRESS": "local"}, on_cpu=False)
    assert only(ray.ray_cluster(own)).status is Status.OK


def test_a_ray_that_is_gone(make_case: MakeCase, tmp_path: Path, silent: int) -> None:
    finding = only(ray.ray_cluster(make_case(environ=note(tmp_path, f"127.0.0.1:{silent}"))))
    assert finding.status is Status.PROBLEM
    assert "ray_current_cluster" in finding.remedy


def test_a_port_that_is_in_use_is_a_problem(make_case: MakeCase, listening: int, silent: int) -> None:
    first = {**SECOND, "NODE_RANK": "0", "MASTER_PORT": str(listening)}
    fine: tuple[dict[str, str], ...] = ({}, {**first, "MASTER_PORT": str(silent)}, {**first, "NODE_RANK": "1"})
    assert [list(ray.ports(make_case(environ=environ))) for environ in fine] == [[], [], []]
    assert only(ray.ports(make_case(environ=first))).subject == "MASTER_PORT"
    keys = {"transfer_queue.metrics.enabled": True, "transfer_queue.metrics.port": listening}
    assert only(ray.ports(make_case(keys))).status is Status.PROBLEM


@pytest.mark.parametrize(
    ("nodes", "environ", "status"),
    [
        (1, {}, "ok"),
        (2, {}, "problem"),
        (2, SECOND, "ok"),
        (3, SECOND, "problem"),
        (1, SECOND, "warning"),
        (2, {"RAY_ADDRESS": "head:6379"}, "ok"),
    ],
)
def test_configured_nodes_must_match_the_environment(
    make_case: MakeCase, nodes: int, environ: dict[str, str], status: str
) -> None:
    case = make_case({"trainer.nnodes": nodes}, on_cpu=False, environ=environ)
    assert only(ray.nodes(case)).status.value == status


def test_nodes_with_several_addresses_need_an_interface_by_name(make_case: MakeCase) -> None:
    def finding(names: list[str], **environ: str) -> Finding:
        facts = node_facts(interfaces=names)
        case = make_case({"trainer.nnodes": 2}, on_cpu=False, environ={**SECOND, **environ})
        return only(ray.nodes(replace(case, given=Machine(case.environ, facts))))

    unclear = finding(["eth0", "ib0"])
    assert (unclear.status, "eth0, ib0" in unclear.text) == (Status.WARNING, True)
    assert unclear.remedy.startswith("Set NCCL_SOCKET_IFNAME")
    assert finding(["eth0"]).status is Status.OK
    assert finding(["eth0", "ib0"], GLOO_SOCKET_IFNAME="ib0").status is Status.OK


def test_a_rank_beyond_the_nodes(make_case: MakeCase) -> None:
    assert refused(ray.nodes(make_case(environ={**SECOND, "NODE_RANK": "2"}))).startswith("NODE_RANK: 2 of 2 nodes")


def test_room_for_the_actors(make_case: MakeCase, tmp_path: Path) -> None:
    assert only(ray.logical_cpus(make_case())).status is Status.OK
    keys = {"ray_kwargs.ray_init.num_cpus": 8, UNITS: 8}
    finding = only(ray.logical_cpus(make_case(keys)))
    assert finding.status is Status.PROBLEM
    assert "8 (ray_kwargs.ray_init.num_cpus), 13 needed (8 storage units" in finding.text
    assert "ray_kwargs.ray_init.num_cpus=13" in finding.remedy
    assert only(ray.logical_cpus(make_case({**keys, UNITS: 3}))).status is Status.OK
    gpus = with_gpus(tmp_path, 8)
    eight = only(ray.logical_cpus(make_case({"ray_kwargs.ray_init.num_cpus": 33}, on_cpu=False, environ=gpus)))
    assert "34 needed" in eight.text
    helpers = {"own": {"path": "a", "n_gpus_per_node": 2}, "polite": {"path": "b", "placement": "shared"},
               "terse": {"path": "c", "placement": "shared"}}  # fmt: skip
    keys = {"ray_kwargs.ray_init.num_cpus": 45, "agent_rl.reward.models": helpers}
    served = only(ray.logical_cpus(make_case(keys, on_cpu=False, environ=gpus)))
    assert "46 needed (8 storage units, 4 for each of 8 GPU(s), 6 more)" in served.text
    two = {**SECOND, **gpus}
    twice = make_case({"ray_kwargs.ray_init.num_cpus": 29, "trainer.nnodes": 2}, on_cpu=False, environ=two)
    assert only(ray.logical_cpus(twice)).status is Status.OK  # 58 on two machines, as many as are needed
    joined = make_case(on_cpu=False, environ={**gpus, "RAY_ADDRESS": "head:6379"})
    assert only(ray.logical_cpus(joined)).status is Status.SKIPPED
