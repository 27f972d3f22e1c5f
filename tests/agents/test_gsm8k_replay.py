"""GSM8K's own worked solutions, replayed through verl's worker: our loop, calculator and reward.

Problems of the test split, all 1,319 in `make test-recipes`. A scripted engine writes one action for each calculator
annotation of a problem (`<<48/2=24>>` asks for `48/2`) and then answers. It answers with what the calculator last told
it wherever the last annotation is the problem's answer.
"""

import asyncio
import json
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from verl import DataProto
from verl.workers.rollout.replica import TokenOutput

from agent_rl.cpu.tiny_model import make_model, make_tokenizer
from agent_rl.data.gsm8k import final_answer, to_row
from agent_rl.data.storage import write_parquet
from agent_rl.trajectory import StopReason, ToolStatus, trace
from tests.support.profiles import bounded, times

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data/gsm8k/test.jsonl"
ROWS = times(400, full=1319)
ANNOTATION = re.compile(r"<<([^<>]*)=([^<>=]*)>>")
PROMPT_LENGTH, RESPONSE_LENGTH = 1024, 2048

pytestmark = [
    bounded,
    pytest.mark.trainer,
    pytest.mark.skipif(not DATA.is_file(), reason=f"GSM8K's test.jsonl is not at {DATA}"),
]


class ScriptedEngine:
    """verl's token server, played: finds the row by the prompt's question and keeps the turn number of each request.

    Args:
        scripts: for each question its expressions, and its final answer or None for "what the calculator last said".
    """

    def __init__(self, tokenizer, scripts):
        self.tokenizer, self.scripts = tokenizer, scripts
        self.requests = {}

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        request = self.requests.get(request_id)
        if request is None:
            question = self.tokenizer.decode(prompt_ids).split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
            request = SimpleNamespace(question=question, turns=[], ids=list(prompt_ids))
            self.requests[request_id] = request
        assert prompt_ids[: len(request.ids)] == request.ids, "earlier tokens have changed"
        text = self.turn(request, prompt_ids)
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        assert len(ids) <= sampling_params["max_new_tokens"]
        request.turns.append(ids)
        request.ids = [*prompt_ids, *ids]
        return TokenOutput(token_ids=ids, log_probs=[-1.0 - token / 1e4 for token in ids], stop_reason="stop")

    def turn(self, request, prompt_ids):
        expressions, answer = self.scripts[request.question]
        number = len(request.turns)
        if number < len(expressions):
            action = json.dumps({"expression": expressions[number]}, ensure_ascii=False)
            return f"Thought: Step {number + 1} needs a calculation.\nAction: calculator\nAction Input: {action}"
        if answer is None:
            answer = self.tokenizer.decode(prompt_ids).rsplit("Observation: ", 1)[1].split("<|im_end|>")[0]
        return f"Thought: Now I know the answer.\nFinal Answer: {answer}"


def script(example):
    """The expressions of a solution, and its final answer or None."""
    annotations = ANNOTATION.findall(example["answer"])
    truth = final_answer(example["answer"])
    last_is_answer = bool(annotations) and Fraction(annotations[-1][1]) == Fraction(truth)
    return [left for left, _ in annotations], None if last_is_answer else truth


def batch_of(config, tokenizer, files):
    """The rows as verl's trainer hands them to a worker."""
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    dataset = RLHFDataset(data_files=files, tokenizer=tokenizer, config=config.data)
    batch = DataProto.from_single_dict(collate_fn([dataset[index] for index in range(len(dataset))]))
    batch.non_tensor_batch["uid"] = np.array([f"row-{index}" for index in range(len(dataset))], dtype=object)
    batch.meta_info = {"global_steps": 1, "validate": False}
    return batch


@pytest.fixture(scope="module")
def replay(compose, tmp_path_factory):
    """The examples, what the worker returned, the engine and the trace."""
    import datasets
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.utils import hf_tokenizer

    folder = tmp_path_factory.mktemp("gsm8k")
    examples = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()[:ROWS]]
    texts = [text for example in examples[:400] for text in (example["question"], *script(example)[0])]
    make_model(folder, make_tokenizer(texts, folder, vocab_size=1500), hidden=8, layers=1, heads=2)
    tokenizer = hf_tokenizer(str(folder))
    write_parquet([to_row(example, "test", index) for index, example in enumerate(examples)], folder / "test.parquet")

    config = compose(
        f"actor_rollout_ref.model.path={folder}",
        f"data.max_prompt_length={PROMPT_LENGTH}",
        f"data.max_response_length={RESPONSE_LENGTH}",
        f"+data.cache_dir={folder}",
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/calculator.yaml",
        "actor_rollout_ref.rollout.agent.default_agent_loop=react_agent",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "reward.reward_manager.name=trajectory",
        f"+agent_rl.trace.path={folder}/trace.jsonl",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        batch = batch_of(config, tokenizer, str(folder / "test.parquet"))

    engine = ScriptedEngine(tokenizer, {example["question"]: script(example) for example in examples})

    async def generate():
        scoring = SimpleNamespace(remote=RewardLoopWorker(config).compute_score)  # called as a Ray actor's
        reward = SimpleNamespace(compute_score=scoring)
        worker = AgentLoopWorker(config, engine, reward_loop_worker_handles=[reward])
        return await worker.generate_sequences(batch)

    output = asyncio.run(generate())
    traced = list(trace.read(folder / "trace.jsonl"))
    return SimpleNamespace(examples=examples, output=output, engine=engine, trace=traced)


def in_order(replay):
    """The traced trajectories in the order of the rows: they are written as they finish."""
    return sorted(replay.trace, key=lambda trajectory: trajectory.info["index"])


def test_every_problem_is_answered_without_a_malformed_turn_or_a_failed_call(replay):
    assert [trajectory.info["index"] for trajectory in in_order(replay)] == list(range(ROWS))
    for trajectory, example in zip(in_order(replay), replay.examples, strict=True):
        assert trajectory.stop_reason is StopReason.ANSWERED
        assert trajectory.malformed_turns == 0
        assert all(result.status is ToolStatus.OK for result in trajectory.results)
        assert len(trajectory.results) == len(ANNOTATION.findall(example["answer"])) == len(trajectory.turns) - 1


def test_replayed_solutions_are_correct(replay):
    scores = [trajectory.score.components["correctness"] for trajectory in in_order(replay)]
    assert replay.output.non_tensor_batch["acc"].tolist() == scores
    assert sum(score == 1.0 for score in scores) >= 0.99 * ROWS
    assert sum(script(example)[1] is None for example in replay.examples) >= 0.9 * ROWS  # the calculator's answers


def test_calculator_agrees_with_the_annotations(replay):
    """Up to their decimals: a few annotations have wrong arithmetic."""
    agreed = total = 0
    for trajectory, example in zip(in_order(replay), replay.examples, strict=True):
        for (_, right), result in zip(ANNOTATION.findall(example["answer"]), trajectory.results, strict=True):
            agreed += abs(Fraction(right) - Fraction(result.text)) < Fraction(1, 10 ** len(right.partition(".")[2]))
            total += 1
    assert total > 3 * ROWS
    assert agreed >= 0.995 * total


def test_batch_holds_exactly_the_sampled_tokens(replay):
    batch = {key: replay.output.batch[key].numpy() for key in replay.output.batch.keys()}  # noqa: SIM118
    assert batch["responses"].shape == batch["response_mask"].shape == (ROWS, RESPONSE_LENGTH)
    assert (batch["input_ids"] == np.concatenate([batch["prompts"], batch["responses"]], axis=1)).all()
    attended = batch["attention_mask"][:, PROMPT_LENGTH:]
    mask = batch["response_mask"]
    assert set(np.unique(mask)) == {0, 1}
    assert (mask <= attended).all()
    lengths = attended.sum(axis=1)
    assert (attended == (np.arange(RESPONSE_LENGTH) < lengths[:, None])).all()
    assert (mask[np.arange(ROWS), lengths - 1] == 1).all(), "a response ends with a sampled token"
    assert (mask[:, 0] == 1).all()
    assert ((batch["rollout_log_probs"] != 0) == (mask == 1)).all()
    expected = np.where(mask == 1, -1.0 - batch["responses"] / 1e4, 0.0)
    assert np.allclose(batch["rollout_log_probs"], expected, atol=1e-6)
    requests = {request.question: request for request in replay.engine.requests.values()}
    for row, example in enumerate(replay.examples):
        request = requests[example["question"]]
        sampled = batch["responses"][row][mask[row] == 1]
        assert sampled.tolist() == [token for turn in request.turns for token in turn]
        whole = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        assert whole.tolist() == request.ids


def test_reward_stands_on_the_last_token(replay):
    rewards = replay.output.batch["rm_scores"]
    lengths = replay.output.batch["attention_mask"][:, PROMPT_LENGTH:].sum(dim=1)
    totals = np.array([trajectory.score.total for trajectory in in_order(replay)], dtype=np.float32)
    assert np.allclose(rewards[np.arange(ROWS), lengths - 1].numpy(), totals)
    assert np.allclose(rewards.sum(dim=1).numpy(), totals)
    turns = [2 * len(trajectory.turns) for trajectory in in_order(replay)]
    assert replay.output.non_tensor_batch["__num_turns__"].tolist() == turns
