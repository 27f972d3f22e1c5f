import pytest
from pydantic import ValidationError

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.source import open_client
from agent_rl.errors import ConfigError


def test_sampling_is_checked_and_knows_its_keys():
    assert Sampling(temperature=0).temperature == 0
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"max_response_tokens": 0}, {"temprature": 1}):
        with pytest.raises(ValidationError):
            Sampling(**wrong)


@pytest.mark.parametrize("url", ["localhost:8000", "", "ftp://host"])
def test_an_address_has_a_scheme(url):
    with pytest.raises(ConfigError, match=r"endpoint: .* is not an address"):
        open_client(url, "m")
