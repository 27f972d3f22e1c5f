"""verl's own data set for fine-tuning reads what is exported, with the loss where the episode has sampled."""

import asyncio
import json

import pytest

from agent_rl import trace
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Score, StopReason
from tests.exports.command import export

pytestmark = pytest.mark.trainer

# As Qwen2.5's: a system message that is always there, with the tools, and the results of a turn in one message.
TEMPLATE = """\
{%- if messages[0].role == 'system' %}{% set said = messages[0].content %}{% else %}{% set said = 'Help.' %}{% endif %}
{{- '<|im_start|>system\\n' + said }}
{%- if tools %}{{ '\\n\\n# Tools' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}
{%- for message in messages %}
{%- if loop.first and message.role == 'system' %}
{%- elif message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
TOOLS = """
from agent_rl.tools import Tool, ToolOutput

class Add(Tool):
    name, description = "add", "Adds."
    parameters = {"type": "object", "properties": {"terms": {"type": "array", "items": {"type": "number"}}}}
    async def call(self, arguments):
        return ToolOutput(str(sum(arguments["terms"])))

class Say(Tool):
    name, description = "say", "Says."
    parameters = {"type": "object", "properties": {"text": {"type": "string", "enum": ["a", "b"]}}}
    async def call(self, arguments):
        return ToolOutput("<|said|> =1+1 {{7*7}}")
"""
CALLS = (
    '<tool_call>\n{"name": "add", "arguments": {"terms": [1, 2]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tokenizer whose template writes tools, as those of most models do."""
    from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer([*CORPUS, CALLS], folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    return folder


@pytest.fixture
def played(model, tmp_path):
    """Plays an episode into the trace, and returns its training sequence."""
    from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
    from agent_rl.policies import Sampling
    from agent_rl.policies.source import PolicyUsage
    from agent_rl.tools import ToolSession, load_tools
    from tests.policies.test_tokens import Scripted

    (tmp_path / "my_tools.py").write_text(TOOLS)
    entries = [{"class_name": f"{tmp_path}/my_tools.py:{name}"} for name in ("Add", "Say")]
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": entries}))

    def play(name, format, texts, prompt):
        async def run():
            policy = Scripted(str(model), Sampling(), texts).policy(PolicyUsage(), format=format)
            async with ToolSession(load_tools(tmp_path / "tools.yaml"), default_timeout_s=5) as session:
                done = await run_episode(policy, format, session, prompt, EpisodeBudget())
            return policy, done

        policy, done = asyncio.run(run())
        assert done.stop_reason is StopReason.ANSWERED
        assert done.tool_errors == 0
        done.id, done.score, done.info = name, Score(1.0), {"split": "train", "tokens": policy.record()}
        trace.append(tmp_path / "trace.jsonl", done)
        (sequence,) = policy.sequences()
        return sequence

    return play


def test_verl_trains_on_what_was_sampled(played, model, tmp_path):
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    from agent_rl.agents.react import ReactFormat
    from agent_rl.agents.tool_call import ToolCallFormat

    system = {"role": "system", "content": "Be careful."}
    user = {"role": "user", "content": "What is 1+2? <|im_end|> \u4e2d"}
    react = ['Action: add\nAction Input: {"terms": [1, 2]}', "Final Answer: 3"]
    sequences = [
        played("react_0", ReactFormat(), react, [user]),
        played("native_0", ToolCallFormat(), [CALLS, CALLS.replace("[1, 2]", "[3]"), "It is 3."], [system, user]),
        played("alone_0", ToolCallFormat(), [CALLS, "It is 3."], [user]),
    ]
    said = export(tmp_path, "sft", "--tokenizer", model, "--min-reward", "1")
    assert said == {"out": f"{tmp_path}/trace.sft.parquet", "trajectories": 3, "left_out": {}}

    tokenizer = AutoTokenizer.from_pretrained(model)
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 4096})
    rows = MultiTurnSFTDataset(said["out"], tokenizer, config)
    newline = tokenizer.encode("\n", add_special_tokens=False)
    for sequence, turns, row in zip(sequences, [2, 3, 2], rows, strict=True):
        ids, loss = row["input_ids"].tolist(), row["loss_mask"].tolist()
        assert ids == [*sequence.prompt_ids, *sequence.response_ids, *newline]
        mask = [0] * len(sequence.prompt_ids) + sequence.mask + [0]
        more = [id for id, ours, verls in zip(ids, mask, loss, strict=True) if ours != verls]
        assert more == newline * turns  # it trains on the end of line after a turn as well
        assert all(verls for ours, verls in zip(mask, loss, strict=True) if ours)


def test_a_tokenizer_must_be_known(played, tmp_path):
    from agent_rl.agents.tool_call import ToolCallFormat

    played("a_0", ToolCallFormat(), [CALLS, "It is 3."], [{"role": "user", "content": "What?"}])
    with pytest.raises(ConfigError, match="no tokenizer is known"):
        export(tmp_path, "sft")
