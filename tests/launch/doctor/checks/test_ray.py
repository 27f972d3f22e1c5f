import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_rl.launch.doctor.checks import ray
from agent_rl.preflight.check import Status
from tests.launch.doctor.conftest import MakeCase, only


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


def test_an_address_where_something_answers(make_case: MakeCase, listening: int) -> None:
    for address in (f"127.0.0.1:{listening}", f"ray://127.0.0.1:{listening}", f"http://127.0.0.1:{listening}/"):
        finding = only(ray.ray_cluster(make_case(environ={"RAY_ADDRESS": address}, on_cpu=False)))
        assert finding.status is Status.OK, address


def test_a_ray_that_runs_here_would_be_joined(make_case: MakeCase, tmp_path: Path, listening: int) -> None:
    environ = note(tmp_path, f"127.0.0.1:{listening}")
    assert only(ray.ray_cluster(make_case(environ=environ, on_cpu=False))).status is Status.WARNING
    given = make_case({"ray_kwargs.ray_init.num_cpus": 4}, environ=environ, on_cpu=False)
    finding = only(ray.ray_cluster(given))
    assert finding.status is Status.PROBLEM
    assert "Ray would reject num_cpus" in finding.text
    own = make_case(environ={**environ, "RAY_ADDRESS": "local"}, on_cpu=False)
    assert only(ray.ray_cluster(own)).status is Status.OK


def test_a_ray_that_is_gone(make_case: MakeCase, tmp_path: Path, silent: int) -> None:
    finding = only(ray.ray_cluster(make_case(environ=note(tmp_path, f"127.0.0.1:{silent}"))))
    assert finding.status is Status.PROBLEM
    assert "ray_current_cluster" in finding.remedy
