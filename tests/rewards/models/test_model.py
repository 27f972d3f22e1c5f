"""One model behind a real HTTP server that scores, refuses, and fails."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn
from tests.rewards.judge.server import bodies
from tests.support.http_faults import FaultyServer, answer, hang


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(CORPUS, folder, 512)
    return folder


def said(text: str) -> Trajectory:
    return Trajectory(prompt=[Message("user", "Hi")], stop_reason=StopReason.ANSWERED, turns=[Turn(text)], answer=text)


def classify(handler: Any) -> None:
    """Scores a text by its length, and refuses one with `refuse` in it."""
    (text,) = json.loads(handler.body)["input"]
    if "refuse" in text:
        return answer(400, {"message": "too long"})(handler)
    name = "probs" if handler.path == "/classify" else "embedding"
    answer(200, {"data": [{"index": 0, name: [0.5, len(text)]}]})(handler)


def judge(handler: Any) -> None:
    """Writes the number that the question ends with."""
    question = json.loads(handler.body)["messages"][-1]["content"]
    number = re.findall(r"say (\S+)", question)[-1]
    answer(200, {"choices": [{"message": {"content": f"Fine.\nScore: {number}"}}]})(handler)


async def scores(server: FaultyServer, *texts: str, **config: Any) -> list[Any]:
    model = Model("m", "k", ModelConfig(url=server.url, attempts=2, **config))
    found = await asyncio.gather(*(model.score(said(text)) for text in texts), return_exceptions=True)
    return [each if isinstance(each, BaseException) else each[0] for each in found]


async def test_a_discriminative_model_reads_the_conversation_in_its_own_template(tokenizer: Path) -> None:
    with FaultyServer(default=classify) as server:
        (found,) = await scores(server, "bcd", tokenizer=str(tokenizer), model="rm")
    (body,) = bodies(server)
    assert server.requests[0].path == "/v1/embeddings"
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nbcd<|im_end|>\n"
    assert body == {"model": "rm", "input": [text]}
    assert found == len(text)


async def test_a_long_text_is_shortened_and_counted(tokenizer: Path) -> None:
    with FaultyServer(default=classify) as server:
        config = {"url": server.url, "tokenizer": str(tokenizer), "response_length": 1, "keep": "head"}
        model = Model("m", "k", ModelConfig.model_validate(config))
        whole, shortened = [await model.score(said(text)) for text in ("b", "bcd bcd bcd")]
    assert (whole[1], shortened[1]) == (False, True)
    assert "bcd bcd" not in server.requests[1].body.decode()


async def test_a_vllm_model_gets_requests_at_its_own_endpoint(tokenizer: Path) -> None:
    with FaultyServer(default=classify) as server:
        found = await scores(server, "a", tokenizer=str(tokenizer), engine="vllm", range=(0, 100))
    (body,) = bodies(server)
    assert server.requests[0].path == "/classify"
    assert body["use_activation"] is False
    assert found == [len(body["input"][0]) / 100]


async def test_a_text_that_is_refused_takes_no_other_with_it(tokenizer: Path) -> None:
    with FaultyServer(default=classify) as server:
        found = await scores(server, "a", "please refuse", "c", tokenizer=str(tokenizer))
    assert isinstance(found[1], UnscoredError)
    assert "400" in str(found[1])
    assert found[0] == found[2] > 0


async def test_a_generative_model_scores_by_the_number_in_its_reply() -> None:
    with FaultyServer(default=judge) as server:
        found = await scores(
            server, "say 7", "say 11", "say nothing", kind="generative", request={"top_p": 0.5}, max_tokens=9
        )
    assert found[0] == 0.7
    assert "not between 0 and 10" in str(found[1])
    assert "expected a score" in str(found[2])
    body = bodies(server)[0]
    assert server.requests[0].path == "/v1/chat/completions"
    assert (body["temperature"], body["max_tokens"], body["top_p"]) == (0.0, 9, 0.5)


@pytest.mark.parametrize(
    "step",
    [
        answer(500, b"no"),
        answer(200, {"choices": []}),
        answer(200, {"choices": [{"message": {"content": None}}]}),
        answer(200, b'{"data": [{"index": 0, "embedding": [NaN]}]}'),
        hang,
    ],
)
@pytest.mark.parametrize("kind", ["generative", "discriminative"])
async def test_a_failure_is_no_score(step: Any, kind: str, tokenizer: Path) -> None:
    with FaultyServer(default=step) as server:
        found = await scores(server, "a", "b", kind=kind, tokenizer=str(tokenizer), timeout_s=0.3, total_s=1)
    assert [type(each) for each in found] == [UnscoredError] * 2
    assert all("'m'" in str(each) for each in found)


async def test_without_an_address_nothing_can_be_scored() -> None:
    with pytest.raises(ConfigError, match=r"k\.url"):
        await Model("m", "k", ModelConfig()).score(said("a"))


@pytest.mark.trainer
async def test_a_discriminative_model_needs_a_tokenizer(tmp_path: Path) -> None:
    with FaultyServer(default=classify) as server:
        (found,) = await scores(server, "a")
        assert isinstance(found, ConfigError)
        (found,) = await scores(server, "a", tokenizer=str(tmp_path))
        assert isinstance(found, ConfigError)


HOOKS = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    if any("odd" in text for text in text_responses):
        raise KeyError("odd")
    known = tgt_tokenizer is not None
    return [f"{prompt}|{response}|{known}" for prompt, response in zip(text_prompts, text_responses)]

async def rm_postprocess(results):
    return [result[0] + result[1] for result in results]
"""


async def test_hooks_of_the_user(tmp_path: Path, tokenizer: Path) -> None:
    hooks = tmp_path / "hooks.py"
    hooks.write_text(HOOKS)
    with FaultyServer(default=classify) as server:
        found = await scores(server, "a", "odd", "ccc", hooks=str(hooks), tokenizer=str(tokenizer))
    assert sorted(body["input"] for body in bodies(server)) == [["Hi|a|True"], ["Hi|ccc|True"]]
    assert (found[0], found[2]) == (9.5, 11.5)
    assert isinstance(found[1], UnscoredError)
    assert "KeyError" in str(found[1])


async def test_generative_hooks_may_send_messages_and_get_texts(tmp_path: Path) -> None:
    hooks = tmp_path / "chat_hooks.py"
    hooks.write_text(
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        "    assert tgt_tokenizer is None\n"
        "    return [[{'role': 'user', 'content': f'say {text}'}] for text in text_responses]\n"
        "def rm_postprocess(results):\n"
        "    return [float(result.rpartition(' ')[2]) if 'x' not in result else None for result in results]\n"
    )
    with FaultyServer(default=judge) as server:
        found = await scores(server, "41", "x", kind="generative", hooks=str(hooks))
    assert found[0] == 41.0  # no range: it is the hook's own scale
    assert "expected a score, got 'None'" in str(found[1])


@pytest.mark.parametrize("value", ["float32(7)", "int64(7)", "argmax([0] * 7 + [1])"])
async def test_a_hook_may_return_a_number_of_numpy(value: str, tmp_path: Path) -> None:
    hooks = tmp_path / "numpy_hooks.py"
    hooks.write_text(f"import numpy\ndef rm_postprocess(results): return [numpy.{value}]\n")
    with FaultyServer(default=judge) as server:
        (found,) = await scores(server, "say 5", kind="generative", hooks=str(hooks), range=(2, 12))
    assert (type(found), found) == (float, 0.5)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def rm_preprocess(a, b, c): return a[:-1]", "returned list of length 0 for 1 trajectory"),
        ("def rm_postprocess(results): return 0.5", "returned float"),
    ],
)
async def test_a_hook_must_return_one_item_per_trajectory(source: str, problem: str, tmp_path: Path) -> None:
    hooks = tmp_path / "wrong.py"
    hooks.write_text(source)
    with FaultyServer(default=judge) as server:
        (found,) = await scores(server, "say 5", kind="generative", hooks=str(hooks))
    assert isinstance(found, ConfigError)
    assert problem in str(found)


def test_a_file_without_hooks(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("rm_proprocess = 1")
    for name in ("none.py", "absent.py"):
        with pytest.raises(ConfigError, match=r"k\.hooks"):
            Model("m", "k", ModelConfig(hooks=str(tmp_path / name)))


def test_a_template_must_be_readable_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "template.txt"
    path.write_text("Is {response} an answer to {prompt}?")
    Model("m", "k", ModelConfig(template=str(path)))
    path.write_text("Is it good?")
    for bad in (str(path), str(tmp_path / "absent")):
        with pytest.raises(ConfigError, match=r"k\.template"):
            Model("m", "k", ModelConfig(template=bad))
