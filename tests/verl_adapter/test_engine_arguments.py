"""SGLang's arguments reach each release under the names that it knows; the other release is a stand-in."""

import pytest
from omegaconf import OmegaConf

from agent_rl.verl_adapter import engine_arguments
from agent_rl.verl_adapter.engine_arguments import RENAMED, known_arguments, rename_arguments
from tests.forks import python


def older(model_path, cuda_graph_max_bs=None, disable_piecewise_cuda_graph=False, attention_backend=None):
    """`ServerArgs` of 0.5.12 and 0.5.13, as far as it matters."""
    return {"max_bs": cuda_graph_max_bs, "no_prefill_graph": disable_piecewise_cuda_graph}


def newer(model_path, cuda_graph_max_bs_decode=None, disable_prefill_cuda_graph=False, attention_backend=None):
    """The same of 0.5.14."""
    return {"max_bs": cuda_graph_max_bs_decode, "no_prefill_graph": disable_prefill_cuda_graph}


@pytest.fixture
def launched(monkeypatch):
    """What a release's engine gets of a configuration's arguments."""

    def launched(release, engine_kwargs):
        monkeypatch.setattr(engine_arguments, "version", lambda _: "0.5.13" if release is older else "0.5.14")
        both = {"sglang": engine_kwargs, "vllm": {"cuda_graph_max_bs": 1}}
        rollout = OmegaConf.create({"name": "sglang", "engine_kwargs": both})
        OmegaConf.set_struct(rollout, True)
        rename_arguments(rollout)
        assert rollout.engine_kwargs.vllm == both["vllm"]
        return release(model_path="m", **rollout.engine_kwargs.sglang or {})

    return launched


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
def test_both_names_work_with_both_releases_and_the_newer_name_counts(
    launched, release, given, max_bs, no_prefill_graph
):
    assert launched(release, given) == {"max_bs": max_bs, "no_prefill_graph": no_prefill_graph}


def test_an_argument_that_no_release_knows_is_left_to_the_engine(launched):
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


def test_a_reward_model_that_is_not_used_has_no_engine():
    rollout = OmegaConf.create({"name": "???", "engine_kwargs": {"sglang": {"cuda_graph_max_bs": 1}}})
    rename_arguments(rollout)
    assert rollout.engine_kwargs.sglang == {"cuda_graph_max_bs": 1}


LAUNCH = """
import asyncio, importlib.abc, importlib.machinery, sys
from types import ModuleType
from unittest.mock import MagicMock

class Anything(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    # Importing SGLang takes seconds.
    def find_spec(self, name, *_):
        if name.split(".")[0] == "sglang":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = MagicMock(__spec__=spec, __path__=[], __name__=spec.name, __version__="0.5.13")
        return module
    def exec_module(self, module): pass

sys.meta_path.insert(0, Anything())
from tests.verl_adapter.trainers import configuration
from verl.workers.rollout.sglang_rollout import async_sglang_server as module

def args(**arguments):
    print(sorted(name for name in arguments if "graph" in name))
    raise StopIteration

module.dataclasses = MagicMock(fields=lambda cls: [])
module.ServerArgs = args
config = configuration().actor_rollout_ref.rollout
config.engine_kwargs = {"sglang": {"cuda_graph_max_bs_decode": 64}}
server = MagicMock(config=config, nnodes=1, _disaggregation_role="null", lora_as_adapter=False)
try: asyncio.run(module.SGLangHttpServer.launch_server(server))
except (StopIteration, RuntimeError): pass
"""


def test_verl_passes_the_arguments_on_by_name():
    assert python(LAUNCH, plugins="none") == "['cuda_graph_max_bs_decode', 'disable_cuda_graph']"
