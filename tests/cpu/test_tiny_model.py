"""The tiny model's tokenizer keeps the promises that token-exact training relies on."""

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from agent_rl.cpu import tiny_model

MESSAGES = [
    {"role": "system", "content": "You may use tools."},
    {"role": "user", "content": "What is 4821+377?"},
    {
        "role": "assistant",
        "content": 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "4821+377"}',
    },
    {"role": "user", "content": "Observation: 5198"},
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
    },
    {"role": "tool", "content": "first\n"},
    {"role": "tool", "content": "second"},
    {"role": "assistant", "content": "Thought: I have the result.\nFinal Answer: 5198"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_model.main(["--out", str(path)])
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(chr, range(256))),
        "\u0800\uffee\U0010fffd naïve 數學 🙂\t\r\n\n  x",
        "He paid $1,234.50 (20%).\n#### 72",
    ],
    ids=["latin", "unicode", "gsm8k"],
)
def test_every_text_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(encode(tokenizer, text)) == text
    assert tokenizer.unk_token_id not in encode(tokenizer, text)


@pytest.mark.parametrize("text", ["a.\nb", "}\n", "x\n\ny", "\n", "<|im_end|>\n", " \n", "\n "])
def test_a_newline_never_merges(tokenizer, text):
    (newline,) = encode(tokenizer, "\n")
    assert encode(tokenizer, text).count(newline) == text.count("\n")


def test_conversation_in_pieces_gives_the_same_ids(tokenizer):
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    pieces = text.replace("<|im_end|>", "<|im_end|>\0").replace("assistant\n", "assistant\n\0").split("\0")
    assert "".join(pieces) == text
    assert [token for piece in pieces for token in encode(tokenizer, piece)] == encode(tokenizer, text)


def test_template_is_prefix_stable(tokenizer):
    whole = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    for count in (1, 2, 3, 4, 5, 7):  # 6 would cut between two tool results, which share one turn
        prefix = tokenizer.apply_chat_template(MESSAGES[:count], tokenize=False)
        assert whole.startswith(prefix)
        if MESSAGES[count]["role"] == "assistant":
            prompt = tokenizer.apply_chat_template(MESSAGES[:count], tokenize=False, add_generation_prompt=True)
            assert prompt == prefix + "<|im_start|>assistant\n"
            assert whole.startswith(prompt)


def test_template_renders_tools_as_qwen_does(tokenizer):
    text = tokenizer.apply_chat_template(MESSAGES[4:7], tokenize=False)
    assert text == (
        "<|im_start|>assistant\nLet me look.\n"
        '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nfirst\n\n</tool_response>\n<tool_response>\nsecond\n</tool_response><|im_end|>\n"
    )


def test_model_loads_and_stops_at_the_end_of_a_turn(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "qwen2"
    assert model.config.tie_word_embeddings
    assert (
        model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>") == tokenizer.eos_token_id
    )
    assert model.config.vocab_size == len(tokenizer)
    assert model.dtype.is_floating_point
    assert model.dtype.itemsize == 4


def test_odd_heads_are_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="even size"):
        tiny_model.make_model(tmp_path, tokenizer, hidden=36, heads=4, layers=1)


def test_a_classifier_gives_one_score_to_each_text(tmp_path):
    tiny_model.main(["--out", str(tmp_path), "--kind", "classifier"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model.config.architectures == ["LlamaForSequenceClassification"]
    texts = [tokenizer.apply_chat_template(MESSAGES[:count], tokenize=False) for count in (2, 4, 8)]
    scores = [model(**tokenizer(text, return_tensors="pt")).logits.item() for text in texts]
    assert len({round(score, 3) for score in scores}) == 3


def test_the_first_reply_of_untrained_models_can_be_a_digit(tokenizer):
    """The ids that recipes/multi_rm/size/cpu.yaml favours."""
    assert tokenizer.convert_tokens_to_ids(list("0123456789")) == list(range(18, 28))
