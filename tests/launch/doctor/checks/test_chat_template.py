import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.cpu.tiny_model import CHAT_TEMPLATE
from agent_rl.launch.doctor.checks.chat_template import (
    TEMPLATE_KEY,
    UsedTemplate,
    chat_template,
    examine,
    load_template,
)
from agent_rl.preflight.check import Finding, Status
from tests.launch.doctor.conftest import MakeCase, only

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
NO_RESULTS = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tool role') }}{% endif %}{% endfor %}"
    + CHAT_TEMPLATE
)
COUNTS = CHAT_TEMPLATE + "{{ messages | length }}"


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model)


def findings(tokenizer: Any, text: str = CHAT_TEMPLATE, **changes: Any) -> dict[str, Finding]:
    tokenizer.chat_template = text
    given = {"ends": frozenset({tokenizer.eos_token_id}), **changes}
    return {finding.subject: finding for finding in examine(UsedTemplate(ChatTemplate(tokenizer), **given))}


@pytest.mark.parametrize("native", [False, True])
def test_a_usable_template_passes_every_check(tokenizer: Any, native: bool) -> None:
    assert findings(tokenizer, SHOWS_TOOLS, native=native) == {}


def test_what_a_run_does_not_need(tokenizer: Any) -> None:
    assert findings(tokenizer, BY_USER, observation_role="tool") == {}
    assert findings(tokenizer, NO_RESULTS) == {}
    assert "tools shown" not in findings(tokenizer, CHAT_TEMPLATE, native=True, taught=True)


# As in Qwen3's template: only a message of the user ends the turns that keep their thinking.
BY_USER = STRIPS_THINKING.replace("not loop.last", "loop.nextitem is defined and loop.nextitem.role == 'user'")


@pytest.mark.parametrize(
    ("template", "changes", "subject", "status", "text"),
    [
        (STRIPS_THINKING, {}, "earlier turns", "warning", "only in its thoughts and their markers: '<think>"),
        (STRIPS_THINKING, {}, "earlier turns", "warning", "has become 'Action: doctors_calculator"),
        (BY_USER, {}, "earlier turns", "warning", "-> Set agent_rl.react.observation_role=tool"),
        (EMPTY_THOUGHT, {}, "earlier turns", "warning", "a turn is rewritten"),
        (COUNTS, {}, "earlier turns", "warning", "a turn is rewritten in later prompts: '"),
        (CHAT_TEMPLATE, {"native": True}, "tools shown", "problem", "-> Use react_agent"),
        (NO_RESULTS, {"observation_role": "tool"}, "chat template", "problem", "no tool role"),
        (NO_RESULTS, {"observation_role": "tool"}, "chat template", "problem", "observation_role=user"),
        (CHAT_TEMPLATE, {"ends": frozenset({0})}, "end of a turn", "warning", "'<|im_end|>', but the engine stops"),
        (CHAT_TEMPLATE.replace("<|im_end|>\\n", ""), {}, "end of a turn", "warning", "-> Add "),
    ],
)  # fmt: skip
def test_what_a_template_does(
    tokenizer: Any, template: str, changes: dict[str, Any], subject: str, status: str, text: str
) -> None:
    finding = findings(tokenizer, template, **changes)[subject]
    assert finding.status.value == status, finding
    assert text in f"{finding.text} -> {finding.remedy}"


def test_the_recipes_template_is_loaded_as_verl_does(make_case: MakeCase, tiny_model: Path, tmp_path: Path) -> None:
    assert {finding.status for finding in chat_template(make_case())} == {Status.OK}
    template = load_template(make_case({TEMPLATE_KEY: "{{ messages }}", "data.apply_chat_template_kwargs.x": 1}))
    assert template.chat.tokenizer.chat_template == "{{ messages }}"
    assert (template.chat.options, template.native, template.observation_role) == ({"x": 1}, False, "user")
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
