import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agent_rl.cpu.tiny_model import CHAT_TEMPLATE, CORPUS
from agent_rl.doctor.checks.chat_template import TEMPLATE_KEY, TokenizerTemplate, chat_template, examine, load_template
from agent_rl.preflight.check import Finding, Status
from tests.doctor.conftest import MakeCase, only

pytestmark = pytest.mark.trainer

# What Qwen3's template does: thinking is dropped from turns before the last question of the user.
STRIPS_THINKING = CHAT_TEMPLATE.replace(
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}",
    "{%- set content = message.content or '' %}{% if message.role == 'assistant' and '</think>' in content and "
    "not loop.last %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' + content }}",
)
# With enable_thinking=False, an empty thought that later renderings leave out.
EMPTY_THOUGHT = CHAT_TEMPLATE.replace(
    "{{ '<|im_start|>assistant\\n' }}", "{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}"
)
SHOWS_TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endif %}" + CHAT_TEMPLATE
)
NO_TOOL_ROLE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tool role') }}{% endif %}{% endfor %}"
)
COUNTS = CHAT_TEMPLATE + "{{ messages | length }}"


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model)


def findings(tokenizer: Any, text: str = CHAT_TEMPLATE, **changes: Any) -> dict[str, Finding]:
    tokenizer.chat_template = text
    given = {"model_type": "qwen2", "ends": frozenset({tokenizer.eos_token_id}), **changes}
    return {finding.subject: finding for finding in examine(TokenizerTemplate(tokenizer, **given))}


@pytest.mark.parametrize("native", [False, True])
def test_a_usable_template_passes_every_check(tokenizer: Any, native: bool) -> None:
    found = findings(tokenizer, SHOWS_TOOLS, native=native)
    assert {finding.status for finding in found.values()} == {Status.OK}, found
    assert found.keys() - {"calls"} == {"tools shown", "end of a turn", "earlier turns", "token builder"}
    assert ("calls" in found) == native


def test_a_template_that_drops_earlier_thinking(tokenizer: Any) -> None:
    finding = findings(tokenizer, STRIPS_THINKING)["earlier turns"]
    assert finding.status is Status.WARNING
    assert "turn 1 is rewritten in later prompts, in its thoughts and their marks only: '<think>" in finding.text
    assert "has become 'Action: doctors_calculator" in finding.text
    assert TEMPLATE_KEY in finding.remedy


def test_where_results_as_tool_messages_keep_the_thinking_that_is_said(tokenizer: Any) -> None:
    """As in Qwen3's template: only a message of the user ends the turns that keep it."""
    by_user = STRIPS_THINKING.replace("not loop.last", "loop.nextitem is defined and loop.nextitem.role == 'user'")
    finding = findings(tokenizer, by_user)["earlier turns"]
    assert finding.status is Status.WARNING
    assert finding.remedy.startswith("Set agent_rl.react.observation_role=tool")
    assert findings(tokenizer, by_user, observation_role="tool")["earlier turns"].status is Status.OK


def test_a_template_whose_prompt_later_renderings_do_not_repeat(tokenizer: Any) -> None:
    finding = findings(tokenizer, EMPTY_THOUGHT)["earlier turns"]
    assert finding.status is Status.WARNING
    assert "turn 1 is rewritten" in finding.text
    assert "hides thinking" not in finding.text


def test_a_template_that_writes_a_count_is_not_stable(tokenizer: Any) -> None:
    found = findings(tokenizer, COUNTS)
    assert found["earlier turns"].status is Status.WARNING
    assert "marks only" not in found["earlier turns"].text


def test_tools_that_are_not_shown(tokenizer: Any) -> None:
    finding = findings(tokenizer, native=True)["tools shown"]
    assert finding.status is Status.PROBLEM
    assert "react_agent" in finding.remedy
    assert findings(tokenizer)["tools shown"].status is Status.OK
    assert findings(tokenizer, native=True, taught=True)["tools shown"].status is Status.OK


def test_a_template_without_the_role_of_results(tokenizer: Any) -> None:
    found = findings(tokenizer, NO_TOOL_ROLE + CHAT_TEMPLATE, observation_role="tool")
    finding = only(found.values())
    assert finding.status is Status.PROBLEM
    assert "no tool role" in finding.text
    assert "agent_rl.react.observation_role=user" in finding.remedy
    assert findings(tokenizer, NO_TOOL_ROLE + CHAT_TEMPLATE)["earlier turns"].status is Status.OK


def test_turns_that_end_where_the_engine_does_not_stop(tokenizer: Any) -> None:
    end_of_text = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    finding = findings(tokenizer, ends=frozenset({end_of_text}))["end of a turn"]
    assert finding.status is Status.WARNING
    assert "ends turns with '<|im_end|>', but the engine stops at '<|endoftext|>'" in finding.text
    endless = findings(tokenizer, CHAT_TEMPLATE.replace("<|im_end|>\\n", ""))["end of a turn"]
    assert endless.status is not Status.OK


def test_a_tokenizer_that_verls_builder_refuses(tiny_model: Path, tmp_path: Path) -> None:
    """verl's builder for Qwen wants a newline to be one token, and <|im_end|> to exist."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<eos>"]))
    other = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<eos>")
    text = CHAT_TEMPLATE.replace("<|im_end|>", "<eos>")
    finding = findings(other, text)["token builder"]
    assert finding.status is Status.PROBLEM
    assert "for model type 'qwen2'" in finding.text
    assert findings(other, text, model_type="llama")["end of a turn"].status is Status.OK


def test_the_recipes_template_is_loaded_as_verl_does(make_case: MakeCase, tiny_model: Path, tmp_path: Path) -> None:
    assert {finding.status for finding in chat_template(make_case())} == {Status.OK}
    template = load_template(make_case({TEMPLATE_KEY: "{{ messages }}", "data.apply_chat_template_kwargs.x": 1}))
    assert template.tokenizer.chat_template == "{{ messages }}"
    assert (template.options, template.native, template.observation_role) == ({"x": 1}, False, "user")
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    other = load_template(make_case({"actor_rollout_ref.model.path": str(folder)}))
    assert {5, 6} < other.ends


def test_a_base_model_without_template(make_case: MakeCase, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "chat_template.jinja").unlink()
    finding = only(chat_template(make_case({"actor_rollout_ref.model.path": str(folder)})))
    assert finding.status is Status.PROBLEM
    assert only(chat_template(make_case({"actor_rollout_ref.model.path": "some/model"}))).status is Status.SKIPPED
