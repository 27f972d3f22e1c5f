"""An evaluation renders what training renders: each key that reaches a prompt or its tokens changes both alike."""

import asyncio
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, OmegaConf

from agent_rl.agents.policies.source import PolicyUsage
from agent_rl.agents.policies.tokens import Sampled, TokenSource
from agent_rl.data import make_row
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.evaluation import sources
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.prompt_keys import PROMPT_KEYS, TRAINING_ONLY, refuse_training_only
from agent_rl.evaluation.recipe import values_of
from agent_rl.evaluation.runner import Evaluation, columns, run
from agent_rl.evaluation.settings import read_settings
from tests.agents.server import THINKING, Server, make_loop
from tests.support.openai_server import MODEL
from tests.support.openai_server import Server as ChatServer

pytestmark = pytest.mark.trainer

ROLLOUT, MODEL_KEYS = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
CALL = '<tool_call>\n{"name": "letters", "arguments": {"first": "%s"}}\n</tool_call>'
TURNS = ["<think>\nTwo.\n</think>\n\n" + CALL % "a" + "\n" + CALL % "b", CALL % "c", "The answer is 42."]
TEMPLATE = "{{ style | default('plain') }} {{ tools | tojson }}" + THINKING.replace("== 'user'", "!= 'assistant'")
SAMPLING = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
OTHER_TOOLS, OTHER_TOKENIZER = "the path of other tools", "the path of another tokenizer"

CHANGES = {
    "agent_rl": {"agent_rl.final_turn.text": "Say it."},
    "agent_rl, thoughts": {"agent_rl.thinking.history": "template"},
    "data.apply_chat_template_kwargs": {"data.apply_chat_template_kwargs.style": "another"},
    f"{MODEL_KEYS}.custom_chat_template": {f"{MODEL_KEYS}.custom_chat_template": f"New. {TEMPLATE}"},
    f"{MODEL_KEYS}.tokenizer_path": {f"{MODEL_KEYS}.tokenizer_path": OTHER_TOKENIZER},
    f"{ROLLOUT}.agent.default_agent_loop": {f"{ROLLOUT}.agent.default_agent_loop": "react_agent"},
    f"{ROLLOUT}.multi_turn.tool_config_path": {f"{ROLLOUT}.multi_turn.tool_config_path": OTHER_TOOLS},
    f"{ROLLOUT}.multi_turn.max_assistant_turns": {f"{ROLLOUT}.multi_turn.max_assistant_turns": 2},
    f"{ROLLOUT}.multi_turn.max_parallel_calls": {f"{ROLLOUT}.multi_turn.max_parallel_calls": 1},
    f"{ROLLOUT}.multi_turn.max_tool_response_length": {f"{ROLLOUT}.multi_turn.max_tool_response_length": 40},
    f"{ROLLOUT}.multi_turn.tool_response_truncate_side": {f"{ROLLOUT}.multi_turn.tool_response_truncate_side": "left"},
    f"{ROLLOUT}.multi_turn.format": {f"{ROLLOUT}.multi_turn.format": "llama3_json"},
    "data.max_prompt_length": {"data.max_prompt_length": 9},
    "data.max_response_length": {"data.max_response_length": 900},
    f"{ROLLOUT}.prompt_length": {f"{ROLLOUT}.prompt_length": 9},
    f"{ROLLOUT}.response_length": {f"{ROLLOUT}.response_length": 900},
}
"""By key of training, a change of what the policy is asked."""

NOT_OF_A_PROMPT = {
    "actor_rollout_ref", ROLLOUT, f"{ROLLOUT}.multi_turn", "data", "data.custom_cls",  # sections
    "data.custom_cls.name",  # counts with its path
    f"{ROLLOUT}.skip_tokenizer_init",  # who looks for stop strings
}  # fmt: skip
"""Other keys that a loop of training reads."""


class Played(TokenSource):
    def __init__(self, chat, sampling):
        super().__init__(chat, sampling)
        self.turns, self.requests = list(TURNS), []

    async def sample(self, prompt_ids, params):
        self.requests.append((list(prompt_ids), params["max_new_tokens"]))
        ids = [*self.tokenizer.encode(self.turns.pop(0), add_special_tokens=False), self.tokenizer.eos_token_id]
        left = params["max_new_tokens"]
        return Sampled(ids[:left], [-0.5] * len(ids[:left]), "length" if left < len(ids) else "stop")


@pytest.fixture(scope="module")
def base(compose, model_dir, tmp_path_factory):
    """A configuration with a row, tools, and a template of a variable."""
    from agent_rl.cpu.tiny_model import make_tokenizer

    folder = tmp_path_factory.mktemp("base")
    (folder / "letters.py").write_text(
        "def letters(first: str) -> str:\n    '''Many letters.'''\n    return first + 'x' * 150 + 'y' * 150\n"
    )
    entry = {"function": f"{folder / 'letters.py'}:letters"}
    (folder / "tools.yaml").write_text(json.dumps({"tools": [entry]}))
    (folder / "others.yaml").write_text(json.dumps({"tools": [{**entry, "description": "Some."}]}))
    make_tokenizer(["another"], folder / "tokenizer", 300)
    (folder / "tokenizer/config.json").write_text(json.dumps({"model_type": "qwen2"}))
    row = make_row(question="What is 6*7?", data_source="gsm8k", ground_truth=42, split="test", index=0)
    pq.write_table(pa.Table.from_pylist([row]).drop_columns(["agent_name"]), folder / "rows.parquet")
    config = compose("reward.reward_manager.name=trajectory", "+agent_rl={final_turn: {enabled: true}}")
    OmegaConf.set_struct(config, False)
    for key, value in {
        "data.val_files": str(folder / "rows.parquet"),
        "data.max_response_length": 3000,
        f"{MODEL_KEYS}.custom_chat_template": TEMPLATE,
        f"{MODEL_KEYS}.override_config.attn_implementation": "sdpa",
        f"{ROLLOUT}.agent.default_agent_loop": "tool_call_agent",
        f"{ROLLOUT}.multi_turn.tool_config_path": str(folder / "tools.yaml"),
        f"{ROLLOUT}.multi_turn.max_assistant_turns": 3,
        f"{ROLLOUT}.multi_turn.max_parallel_calls": 2,
    }.items():
        OmegaConf.update(config, key, value)
    return config, folder


def changed(base, keys):
    config, folder = base[0].copy(), base[1]
    paths = {OTHER_TOOLS: str(folder / "others.yaml"), OTHER_TOKENIZER: str(folder / "tokenizer")}
    for key, value in keys.items():
        OmegaConf.update(config, key, paths.get(str(value), value), force_add=True)
    return config


def trained(config, row):
    """The requests of training's loop, made as verl's worker makes it, and why there is no trajectory."""
    from verl.utils.config import omega_conf_to_dataclass

    tokenizer = omega_conf_to_dataclass(config.actor_rollout_ref.model).tokenizer
    server = Server(tokenizer, *TURNS)

    async def inside():
        loop = make_loop(config, server, tokenizer, config.actor_rollout_ref.rollout.agent.default_agent_loop)
        try:
            await loop.run(SAMPLING, **columns(row, 0, 0))
        except UnscoredError as error:
            return str(error)

    error = asyncio.run(inside())
    return [(each["ids"], each["params"]["max_new_tokens"]) for each in server.requests], error


def evaluated(config, out, monkeypatch):
    """The same of an evaluation of the configuration."""
    monkeypatch.setattr(sources, "LocalModel", lambda weights, chat, sampling, **_: Played(chat, sampling))
    path = config.actor_rollout_ref.model.path
    settings = read_settings({"model": path}, ["policy=local", "agent_rl.reward.correctness.scorer=gsm8k"],
                             values_of(config))  # fmt: skip
    evaluation, records = Evaluation.load(settings), []

    async def inside():
        async with sources.open_source(settings, out) as source:
            with Ledger(out, settings) as ledger:
                await run(evaluation, source, ledger, records.append)
            return source.requests

    return asyncio.run(inside()), records[0].error


@pytest.fixture(scope="module")
def row(base):
    from agent_rl.data import read_parquet

    return read_parquet(base[0].data.val_files)[0]


@pytest.fixture(scope="module")
def unchanged(base, row):
    requests, error = trained(base[0].copy(), row)
    assert (len(requests), error) == (3, None)
    return requests


@pytest.mark.parametrize("keys", CHANGES.values(), ids=CHANGES)
def test_each_key_changes_training_and_evaluation_alike(base, row, unchanged, tmp_path, monkeypatch, keys):
    config = changed(base, keys)
    requests, error = trained(config, row)
    assert requests != unchanged
    assert evaluated(config, tmp_path, monkeypatch) == (requests, error)


def test_every_key_that_a_loop_reads_is_listed(base, row, monkeypatch):
    """A key that the loop reads one day is listed as one of a prompt, or here as another one."""
    read, original = set(), DictConfig._get_impl

    def record(self, key, *args, **kwargs):
        if self._get_root() is config:
            read.add(self._get_full_key(key))
        return original(self, key, *args, **kwargs)

    config = base[0].copy()
    tokenizer_and_template = {f"{MODEL_KEYS}.custom_chat_template", f"{MODEL_KEYS}.tokenizer_path"}  # of verl's worker
    from verl.utils.config import omega_conf_to_dataclass

    tokenizer = omega_conf_to_dataclass(config.actor_rollout_ref.model).tokenizer

    async def inside():
        loop = make_loop(config, Server(tokenizer, *TURNS), tokenizer, "tool_call_agent")
        await loop.run(SAMPLING, **columns(row, 0, 0))

    monkeypatch.setattr(DictConfig, "_get_impl", record)
    asyncio.run(inside())
    monkeypatch.undo()
    read = {key for key in read if not key.startswith("agent_rl.")}
    assert read - PROMPT_KEYS.keys() - TRAINING_ONLY.keys() <= NOT_OF_A_PROMPT
    lengths = {"data.max_prompt_length", "data.max_response_length"}  # behind an interpolation
    worker = {f"{ROLLOUT}.agent.default_agent_loop", *tokenizer_and_template, *lengths}
    assert PROMPT_KEYS.keys() - worker <= read
    assert {key.partition(",")[0] for key in CHANGES} == PROMPT_KEYS.keys()


def test_a_chat_endpoint_is_sent_the_variables_of_the_template(base, tmp_path):
    values = values_of(changed(base, {"data.apply_chat_template_kwargs.enable_thinking": False}))
    del values["custom_chat_template"]

    async def sent(*words):
        async with ChatServer() as server:
            settings = read_settings({"model": MODEL, "endpoint": server.url}, words, values)
            async with sources.open_source(settings, tmp_path) as source:
                policy = source.policy(PolicyUsage())
                await policy.begin([{"role": "user", "content": "What is 1+1?"}], [])
                await policy.generate()
        return server.requests[-1].get("chat_template_kwargs")

    assert asyncio.run(sent()) == {"enable_thinking": False}
    assert asyncio.run(sent("sampling.body.chat_template_kwargs.depth=2")) == {"enable_thinking": False, "depth": 2}
    assert asyncio.run(sent("sampling.body.chat_template_kwargs=null")) is None
    assert asyncio.run(sent("+data.apply_chat_template_kwargs.enable_thinking=true")) == {"enable_thinking": True}
    with pytest.raises(ConfigError, match=r"^custom_chat_template: .*its own template.*policy=sglang"):
        asyncio.run(sent("actor_rollout_ref.model.custom_chat_template=mine"))


def test_what_only_training_can_do_is_refused_by_name(base):
    refuse_training_only(OmegaConf.to_container(base[0]))
    for key, (harmless, *_) in TRAINING_ONLY.items():
        config = OmegaConf.create()
        for other, (value, *_) in TRAINING_ONLY.items():
            OmegaConf.update(config, other, value if other != key else {"a": 1} if harmless == {} else "mine",
                             force_add=True)  # fmt: skip
        with pytest.raises(ConfigError, match=rf"^{key}: .*changes the training prompts.*Add {key}="):
            refuse_training_only(OmegaConf.to_container(config))
