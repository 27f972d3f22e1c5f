"""The quicker way gives verl's tokens; where it would not, verl's way is taken."""

import pytest

pytest.importorskip("verl")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from agent_rl.verl_adapter import rendering
from agent_rl.verl_adapter.rendering import MOST, remembering

PREVIOUS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
WITH_TOOLS = (
    "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif %}{%- for m in messages %}"
    "<|im_start|>{{ m.role }}{{ m.name or '' }}\n{{ m.content }}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
PLAIN = (
    "{%- for m in messages %}[{{ m.role }}]{{ m.content }}\n{%- endfor %}{%- if add_generation_prompt %}[a]{%- endif %}"
)


@pytest.fixture(params=[None, WITH_TOOLS, PLAIN], ids=["own", "with tools", "no special tokens"])
def template(request, tokenizer, monkeypatch):
    if request.param:
        monkeypatch.setattr(tokenizer, "chat_template", request.param)
    return request.param


def make(tokenizer, **options):
    return create_continuous_token_builder(tokenizer, hf_model_type="qwen2", chat_template_kwargs=options)


messages = st.one_of(
    st.builds(lambda text: [{"role": "user", "content": text}], st.text(max_size=20)),
    st.lists(
        st.fixed_dictionaries(
            {"role": st.just("tool"), "content": st.text(max_size=20)}, optional={"name": st.sampled_from(["f", "g"])}
        ),
        min_size=1,
        max_size=3,
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(several=st.lists(messages, min_size=1, max_size=4), tools=st.sampled_from([None, TOOLS]))
def test_tokens_are_verls(tokenizer, template, several, tools):
    verls, ours = make(tokenizer), remembering(make(tokenizer))
    for new in several:
        expected = verls.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2], tools=tools)
        assert ours.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2], tools=tools) == expected
        assert ours.build_initial_tokens(new, tools=tools) == verls.build_initial_tokens(new, tools=tools)


def test_made_up_conversation_is_rendered_once_over_all_builders(tokenizer, monkeypatch):
    rendered = []
    real = rendering._Template.text

    def counting(self, messages, tools, **options):
        rendered.append(len(messages))
        return real(self, messages, tools, **options)

    monkeypatch.setattr(rendering, "_templates", {})
    monkeypatch.setattr(rendering._Template, "text", counting)
    for content in ("a", "b", "c"):
        new = [{"role": "tool", "content": content}]
        remembering(make(tokenizer)).merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2])
    assert rendered == [3, 4, 4, 4], "the prefix once, and each conversation as text"


def test_what_was_rendered_before_is_remembered_for_all_samples(tokenizer, monkeypatch):
    monkeypatch.setattr(rendering, "_templates", {})
    results = [[{"role": "tool", "content": text}] for text in ("a", "b", "b", "b", "a")]
    verls = make(tokenizer)
    for new in results:
        ours = remembering(make(tokenizer)).merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2]).token_ids
        assert ours == verls.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2]).token_ids
        ours.append(7)  # what is given is the caller's own
    (template,) = rendering._templates.values()
    assert len(template.known) == 2  # the first of a kind is verl's
    for number in range(2 * MOST):
        remembering(make(tokenizer)).build_initial_tokens([{"role": "user", "content": str(number)}])
    assert len(template.known) <= MOST


@pytest.mark.parametrize("state", [{"truncation": 3}, {"padding": 64}, {"split": True}])
def test_a_tokenizer_that_was_set_to_change_texts_is_asked_as_verl_asks_it(tokenizer, state):
    ours, verls = remembering(make(tokenizer)), make(tokenizer)
    messages = [{"role": "user", "content": "what is it?"}]
    ours.build_initial_tokens(messages)  # the kind is known from here on
    backend = tokenizer.backend_tokenizer
    try:
        if "truncation" in state:
            backend.enable_truncation(state["truncation"])
        elif "padding" in state:
            backend.enable_padding(length=state["padding"])
        else:
            backend.encode_special_tokens = True
        assert ours.build_initial_tokens(messages) == verls.build_initial_tokens(messages)
    finally:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False


def test_a_template_that_wants_a_user_is_left_to_verl(tokenizer, monkeypatch):
    wants = "{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ 1 / 0 }}{% endif %}" + WITH_TOOLS
    monkeypatch.setattr(tokenizer, "chat_template", wants)
    ours, verls = remembering(make(tokenizer)), make(tokenizer)
    for messages in ([{"role": "user", "content": "a"}], [{"role": "system", "content": "b"}]):
        for _ in range(2):
            assert ours.build_initial_tokens(messages) == verls.build_initial_tokens(messages)


def test_a_template_that_refuses_the_made_up_conversation_is_left_to_verl(tokenizer, monkeypatch):
    refuses = "{% for m in messages if m.role == 'system' %}{{ 1 / 0 }}{% endfor %}" + WITH_TOOLS
    monkeypatch.setattr(tokenizer, "chat_template", refuses)
    new = [{"role": "tool", "content": "a"}]
    for builder in (make(tokenizer), remembering(make(tokenizer))):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):  # which is verl's answer
                builder.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5])


def test_template_or_options_of_another_kind_are_told_apart(tokenizer, monkeypatch):
    new = [{"role": "tool", "content": "a"}]
    before = remembering(make(tokenizer)).merge_context_tokens(PREVIOUS, PREVIOUS + new, [5]).token_ids
    monkeypatch.setattr(tokenizer, "chat_template", WITH_TOOLS)
    after = remembering(make(tokenizer)).merge_context_tokens(PREVIOUS, PREVIOUS + new, [5]).token_ids
    assert before != after
    assert after == make(tokenizer).merge_context_tokens(PREVIOUS, PREVIOUS + new, [5]).token_ids


def test_memory_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(rendering, "_templates", {})
    builder = remembering(make(tokenizer))
    for number in range(MOST + 3):
        new = [{"role": "tool", "name": f"f{number}", "content": "a"}]
        builder.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5])
    (template,) = rendering._templates.values()
    assert len(template.prefixes) == 3
