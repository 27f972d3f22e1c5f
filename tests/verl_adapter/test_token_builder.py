"""Where verl's builder knows a model's family, ours gives its tokens."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from agent_rl.verl_adapter.token_builder import TemplateBuilder, template_builder

PREVIOUS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
WITH_TOOLS = (
    "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif %}{%- for m in messages %}"
    "<|im_start|>{{ m.role }}{{ m.name or '' }}\n{{ m.content }}<|im_end|>{{ '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)


@pytest.fixture(params=[None, WITH_TOOLS], ids=["own", "with tools"])
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
    verls, ours = make(tokenizer), template_builder(make(tokenizer))
    for new in several:
        expected = verls.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2], tools=tools)
        assert ours.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, 2], tools=tools) == expected
        assert ours.build_initial_tokens(new, tools=tools) == verls.build_initial_tokens(new, tools=tools)


def test_the_token_that_ends_a_turn_is_written_where_the_turn_has_none(tokenizer):
    end, newline = tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.encode("\n", add_special_tokens=False)
    new = [{"role": "user", "content": "a"}]
    ours = template_builder(make(tokenizer))
    ended = ours.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5, end])
    assert ended.inserted_token_ids == newline
    cut = ours.merge_context_tokens(PREVIOUS, PREVIOUS + new, [5])
    assert cut.inserted_token_ids == [end, *newline]
    assert cut.token_ids == [5, *ended.token_ids[1:]]


def test_a_builder_of_images_is_left_as_it_is():
    class Images(ContinuousTokenBuilder):
        def build_initial_tokens(self, messages, **_):
            return []

    verls = Images(None)
    assert template_builder(verls) is verls


def test_a_template_is_shared_by_all_conversations(tokenizer):
    one, two = (template_builder(make(tokenizer)) for _ in range(2))
    assert isinstance(one, TemplateBuilder)
    assert one.template is two.template
    assert template_builder(make(tokenizer, x=1)).template is not one.template
