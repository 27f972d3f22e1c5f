"""The text around turns by any chat template: small templates of each kind, and those of real models where they are."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.policies.chat_template import (
    MOST,
    ChatTemplate,
    load_tokenizer,
    template_of,
    with_syntax,
)
from agent_rl.agents.policies.turn_writer import TurnWriter
from agent_rl.errors import ConfigError
from agent_rl.trajectory import ToolCall
from tests.agents.policies.template_matrix import AGENTS, HISTORIES, PAGE, page, play, row, stop_before, template
from tests.support.real_templates import NAMES

pytestmark = pytest.mark.trainer

USER = {"role": "user", "content": "Hello."}
SYSTEM = {"role": "system", "content": "Be brief."}
ALTERNATING = (
    "{% for m in messages %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Gemma 2's: neither system messages nor two messages of one role in a row."""
ENDLESS = (
    "{% for m in messages %}{{ '<|im_end|>' if m.role == 'user' else '<|endoftext|>' if m.role == 'tool' else "
    "'<|im_start|>' }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
"""As GLM's: a turn ends where the next message begins, and its first token says whose message it is."""
WORKING = """
ByteDance-Seed-OSS GLM-4.6 GLM-4.7-Flash HuggingFaceTB-SmolLM3-3B MiniMax-M2 google-gemma-2-2b-it
Mistral-Small-3.2-24B-Instruct-2506 NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct
NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-Qwen3-0.6B Qwen3-Coder Qwen3.5-4B deepseek-ai-DeepSeek-V3.1
deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B google-gemma-4-31B-it
ibm-granite-granite-4.0 meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct moonshotai-Kimi-K2
meta-llama-Llama-3.3-70B-Instruct microsoft-Phi-3.5-mini-instruct mistralai-Mistral-Nemo-Instruct-2407
openai-gpt-oss-120b unsloth-mistral-Devstral-Small-2507
""".split()  # noqa: SIM905
LEAVE_SOMETHING_OUT = {"mistralai-Mistral-Nemo-Instruct-2407", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
SYNTAXES = {
    "Qwen2.5": "hermes",
    "Qwen3-Coder": "qwen3_coder",
    "Llama-3.1-8B-Instruct": "llama3_json",
    "Hermes-3": "hermes",
    "Mistral-Nemo": "mistral",
    "Devstral": "mistral",
    "gemma-4": "gemma4",
    "GLM-4.6": "glm",
    "Kimi-K2": "kimi",
    "DeepSeek-V3.1": "deepseek_v3",
    "DeepSeek-V4": "deepseek_v4",
    "gpt-oss": "gpt-oss",
    "Seed-OSS": "seed",
    "MiniMax-M2": "minimax",
    "SmolLM3": "hermes",
    "gemma-2-": "hermes",
}


def of(tokenizer: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> ChatTemplate:
    monkeypatch.setattr(tokenizer, "chat_template", text)
    return ChatTemplate(tokenizer)


def test_what_follows_a_turn_is_its_end_the_messages_and_the_next_turns_start(tokenizer: Any) -> None:
    chat = ChatTemplate(tokenizer)
    closing, rest = chat.following([{"role": "user", "content": "Go on."}])
    assert chat.decode(closing) == "<|im_end|>\n"
    assert chat.decode(rest) == "<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
    assert chat.end_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert chat.syntax == "hermes"


def test_a_template_that_refuses_system_messages_and_repeated_users(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = of(tokenizer, ALTERNATING, monkeypatch)
    assert not chat.takes_system
    assert not chat.takes_repeated_users
    said = chat.decode(chat.prompt_ids([SYSTEM, USER, USER]))
    assert said == "<|im_start|>user\nBe brief.\n\nHello.\n\nHello.<|im_end|>\n<|im_start|>assistant\n"
    pictures = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    (joined,) = chat.fitted([SYSTEM, {"role": "user", "content": pictures}])
    assert joined["content"] == [{"type": "text", "text": "Be brief."}, *pictures]
    assert chat.decode(chat.following([USER]).rest).startswith("<|im_start|>user\nHello.")


def test_what_even_fitted_messages_cannot_say_is_the_templates_error(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = of(tokenizer, ALTERNATING, monkeypatch)
    with pytest.raises(Exception, match="roles must alternate"):
        chat.following([USER, {"role": "assistant", "content": "5"}, {"role": "assistant", "content": "5"}])
    with pytest.raises(Exception, match="roles must alternate"):
        chat.prompt_ids([{"role": "assistant", "content": "5"}])


def test_a_template_in_which_the_next_message_ends_a_turn(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = of(tokenizer, ENDLESS, monkeypatch)
    user, tool = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>"))
    assert chat.end_id is None
    assert chat.start_ids == {user, tool}
    assert stop_before(chat, {"role": "tool", "content": "5"}) == [tool]


def test_a_template_without_known_calls_is_said_before_the_first_episode(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_syntax(EpisodeLimits(format="auto"), tokenizer).format == "hermes"
    assert with_syntax(EpisodeLimits(format="glm"), tokenizer).format == "glm"
    chat = of(tokenizer, "{{ tools }}" + ALTERNATING, monkeypatch)
    assert chat.syntax is None
    with pytest.raises(ValueError, match="writes no calls"):
        TurnWriter(chat).calls([ToolCall("f", {})])
    with pytest.raises(
        ConfigError,
        match=r"multi_turn\.format: the chat template cannot be used: it writes no calls, or writes them in an unkn",
    ):
        with_syntax(EpisodeLimits(format="auto"), tokenizer)


def test_memory_is_bounded_and_what_is_given_is_the_callers_own(tokenizer: Any) -> None:
    chat = template_of(tokenizer)
    assert template_of(tokenizer) is chat
    for number in range(2 * MOST):
        chat.prompt_ids([{"role": "user", "content": str(number)}])
    assert len(chat._known) <= MOST
    ids = chat.prompt_ids([USER])
    ids.append(7)
    assert chat.prompt_ids([USER]) == ids[:-1]


@pytest.mark.skipif(not NAMES, reason="the templates of real models are not beside the repository")
@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("agent", ["react_agent", "tool_call_agent"])
def test_templates_that_people_use_work(agent: str, name: str) -> None:
    for history in HISTORIES:
        cell = play(template(name), agent, history)
        assert cell.works, cell.reason
        assert "r" not in cell.notes or name in LEAVE_SOMETHING_OUT


@pytest.mark.skipif(not NAMES, reason="the templates of real models are not beside the repository")
@pytest.mark.parametrize(("name", "syntax"), SYNTAXES.items())
def test_the_syntax_is_found_from_the_template(name: str, syntax: str) -> None:
    assert {template(each).syntax for each in NAMES if name in each and each != "Kimi-K2-Instruct"} - {None} == {syntax}


@pytest.mark.recipes
@pytest.mark.skipif(not NAMES, reason="the templates of real models are not beside the repository")
def test_the_page_is_what_the_command_writes() -> None:
    rows = {name: row(name) for name in NAMES}
    assert len(rows) >= 40
    assert len(AGENTS) == 7
    assert page(rows) == PAGE.read_text(encoding="utf-8")


QUICKSTART = Path(__file__).parents[3] / "recipes/quickstart/model"


def test_a_folder_gives_its_tokenizer() -> None:
    assert load_tokenizer(str(QUICKSTART), "--model").chat_template


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--model: there is no tokenizer in .*Hub"):
        load_tokenizer(str(tmp_path), "--model")


def test_a_base_model_has_no_template(tmp_path: Path) -> None:
    shutil.copytree(QUICKSTART, tmp_path / "base", ignore=shutil.ignore_patterns("chat_template*"))
    config = tmp_path / "base/tokenizer_config.json"
    config.write_text(config.read_text().replace('"chat_template"', '"another"'))
    with pytest.raises(ConfigError, match="has no chat template"):
        load_tokenizer(str(tmp_path / "base"), "--tokenizer")
