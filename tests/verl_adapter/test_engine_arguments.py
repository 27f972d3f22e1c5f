"""SGLang's arguments reach each release under the names that it knows; the other release is a stand-in."""

import asyncio
from types import SimpleNamespace

import pytest

from agent_rl.verl_adapter.engine_arguments import RENAMED, known_arguments, rename_arguments


def older(model_path, cuda_graph_max_bs=None, disable_piecewise_cuda_graph=False, attention_backend=None):
    """`ServerArgs` of 0.5.12 and 0.5.13, as far as it matters."""
    return {"max_bs": cuda_graph_max_bs, "no_prefill_graph": disable_piecewise_cuda_graph}


def newer(model_path, cuda_graph_max_bs_decode=None, disable_prefill_cuda_graph=False, attention_backend=None):
    """The same of 0.5.14."""
    return {"max_bs": cuda_graph_max_bs_decode, "no_prefill_graph": disable_prefill_cuda_graph}


def launched(release, engine_kwargs):
    """What verl's server makes of a configuration's arguments."""

    class Server:
        def __init__(self):
            self.config = {"engine_kwargs": {"sglang": engine_kwargs, "vllm": {"cuda_graph_max_bs": 1}}}

        async def launch_server(self):
            own = self.config["engine_kwargs"]["sglang"] or {}
            self.server_args = release(model_path="m", attention_backend=own.pop("attention_backend", None), **own)

    rename_arguments(SimpleNamespace(SGLangHttpServer=Server, ServerArgs=release))
    server = Server()
    asyncio.run(server.launch_server())
    return server.server_args


@pytest.mark.parametrize("release", [older, newer])
@pytest.mark.parametrize(
    ("given", "max_bs", "no_prefill_graph"),
    [
        ({"cuda_graph_max_bs": 512, "disable_piecewise_cuda_graph": True}, 512, True),
        ({"cuda_graph_max_bs_decode": 64, "disable_prefill_cuda_graph": True}, 64, True),
        ({"cuda_graph_max_bs": 512, "cuda_graph_max_bs_decode": 64, "attention_backend": "fa3"}, 64, False),
        ({}, None, False),
        (None, None, False),
    ],
)
def test_both_names_work_with_both_releases_and_the_newer_name_counts(release, given, max_bs, no_prefill_graph):
    assert launched(release, given) == {"max_bs": max_bs, "no_prefill_graph": no_prefill_graph}


def test_an_argument_that_no_release_knows_is_left_to_the_engine():
    with pytest.raises(TypeError, match="cuda_graph_most"):
        launched(newer, {"cuda_graph_most": 1})


def test_the_installed_release_has_one_of_both_names_of_each():
    """Read as text: importing SGLang takes seconds."""
    import re
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("sglang")
    text = Path(spec.submodule_search_locations[0], "srt/server_args.py").read_text()
    fields = set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    assert all((older in fields) != (newer in fields) for older, newer in RENAMED.items())
    assert known_arguments(dict.fromkeys(RENAMED.values(), 1), fields).keys() <= fields


def test_verl_passes_the_arguments_on_by_name():
    from importlib.util import find_spec
    from pathlib import Path

    folder = Path(find_spec("verl").submodule_search_locations[0])
    text = (folder / "workers/rollout/sglang_rollout/async_sglang_server.py").read_text()
    assert 'engine_kwargs = self.config.get("engine_kwargs", {}).get("sglang", {}) or {}' in text
    assert "server_args = ServerArgs(**args)" in text
