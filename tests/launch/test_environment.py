import pytest

from agent_rl.launch.environment import JOINING, joins_ray


@pytest.mark.parametrize(
    ("environ", "joins"),
    [
        ({}, False),
        ({"RAY_ADDRESS": ""}, False),
        ({"RAY_ADDRESS": "local"}, False),
        ({"RAY_ADDRESS": "auto"}, True),
        ({"RAY_ADDRESS": "head:6379"}, True),
    ],
)
def test_only_a_named_cluster_is_joined(environ: dict[str, str], joins: bool) -> None:
    assert joins_ray(environ) is joins


def test_sizes_that_ray_refuses_when_it_joins_are_taken_back() -> None:
    assert "++ray_kwargs.ray_init.num_cpus=null" in JOINING
