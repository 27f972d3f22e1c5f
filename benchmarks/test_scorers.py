"""Scores a second of our scorers against verl's naive and prime managers, and how long they hold up an event loop.

The inputs are the same: token ids of responses, in groups of eight to a problem as a rollout has them, of which five
give the labelled answer of tests/rewards/corpus and three another one. Ours decode the ids and judge the text; verl's
managers do the same by verl's own scorers. Rounds take turns, shares are medians of rounds, and what is remembered of
answers is forgotten before each round. CPU time is that of this process and of all that it has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl")

import numpy as np  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager  # noqa: E402
from verl.utils.reward_score import default_compute_score  # noqa: E402
from verl.workers.reward_manager.prime import PrimeRewardManager  # noqa: E402

from agent_rl.rewards import SCORERS, compute_score, route, score_answer  # noqa: E402
from agent_rl.rewards.scorers import score_now  # noqa: E402
from agent_rl.rewards.scorers.math import forms as _forms  # noqa: E402
from agent_rl.rewards.scorers.math import math_answer  # noqa: E402
from agent_rl.rewards.scorers.math import worker as _worker  # noqa: E402
from tests.data.real import shared  # noqa: E402
from tests.rewards.scorers.test_hostile import TEXTS, TRUTHS, scorer_of  # noqa: E402

pytestmark = pytest.mark.benchmark

CORPUS = Path(__file__).parents[1] / "tests/rewards/corpus"
ROUNDS, GROUP, RIGHT = 5, 8, 5
WORDING = "First I look at what is given, then I write down what follows from it, step by step, and check it. "
BLOCK_MS = 50.0


@dataclass(frozen=True)
class Case:
    """One response and what it is judged by."""

    source: str
    text: str
    truth: Any


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()]


def group(source: str, right: str, wrong: str, truth: Any) -> list[Case]:
    texts = [right] * RIGHT + [wrong] * (GROUP - RIGHT)
    return [Case(source, f"{WORDING * (6 + number)}\n{text}", truth) for number, text in enumerate(texts)]


def math_cases(source: str, form: str) -> list[Case]:
    found = [case for case in lines("math.jsonl") if "9^{9" not in case["answer"]][::6]
    groups = [group(source, form % case["answer"], form % "17", case["truth"]) for case in found]
    return [case for each in groups for case in each]


def code_cases() -> list[Case]:
    truth = json.dumps({"inputs": ["1 2\n", "3 4\n", "5 6\n"], "outputs": ["3\n", "7\n", "11\n"]})
    right = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
    return group("taco", right, right.replace("+", "-"), truth)


SETS: dict[str, Callable[[], list[Case]]] = {
    "gsm8k": lambda: [
        case
        for number in range(40)
        for case in group("openai/gsm8k", f"#### {1000 + number}", "#### 17", str(1000 + number))
    ],
    "math": lambda: math_cases("lighteval/MATH", "So it is $\\boxed{%s}$."),
    "math (dapo)": lambda: math_cases("aime2024", "Answer: %s"),
    "math (prime)": lambda: math_cases("numina_olympiads", "So it is $\\boxed{%s}$.")[: 10 * GROUP],
    "geo3k": lambda: math_cases("hiyouga/geometry3k", "So it is $\\boxed{%s}$."),
    "qa_em": lambda: [
        case
        for each in lines("extraction.jsonl")
        if each["scorer"] == "qa_em" and isinstance(each["truth"], str | list) and len(each["solution"]) < 500
        for case in group("searchR1_nq", each["solution"], "<answer>17</answer>", {"target": each["truth"]})
    ],
    "code": code_cases,
}
TWICE = ("math", "math (dapo)", "math (prime)", "code")


class Inputs:
    """The cases as verl's managers are given them."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator([case.text for case in cases], trainer)
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<end>")
        self.ids = [torch.tensor(self.tokenizer.encode(case.text)) for case in cases]
        self.items = [self._item([case], [ids]) for case, ids in zip(cases, self.ids, strict=True)]
        self.batch = self._item(cases, self.ids)

    def _item(self, cases: list[Case], ids: list[Any]) -> DataProto:
        responses = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        prompts = torch.ones((len(ids), 4), dtype=torch.long)
        lengths = torch.tensor([len(each) for each in ids])
        mask = (torch.arange(responses.shape[1])[None] < lengths[:, None]).long()
        attention = torch.cat([torch.ones_like(prompts), mask], dim=1)
        tensors = {"prompts": prompts, "responses": responses, "attention_mask": attention}
        columns = {
            "data_source": [case.source for case in cases],
            "reward_model": [{"ground_truth": case.truth} for case in cases],
            "extra_info": [{} for _ in cases],
        }
        arrays = {}
        for name, values in columns.items():
            arrays[name] = np.empty(len(values), dtype=object)
            arrays[name][:] = values
        return DataProto(batch=TensorDict(tensors, batch_size=len(ids)), non_tensor_batch=arrays)


def forget() -> None:
    math_answer._decide.cache_clear()
    _forms.read.cache_clear()
    _worker.compare.cache_clear()


async def ours(inputs: Inputs) -> None:
    async def one(case: Case, ids: Any) -> None:
        text = inputs.tokenizer.decode(ids, skip_special_tokens=True)
        await score_answer(route(case.source), text, case.truth, {})

    await asyncio.gather(*(one(case, ids) for case, ids in zip(inputs.cases, inputs.ids, strict=True)))


async def naive(inputs: Inputs) -> None:
    manager = NaiveRewardManager(OmegaConf.create({}), inputs.tokenizer, default_compute_score)
    await asyncio.gather(*(manager.run_single(item) for item in inputs.items))


def prime(inputs: Inputs) -> None:
    PrimeRewardManager(inputs.tokenizer, num_examine=0)(inputs.batch)


def cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    living = [each.cpu_times() for each in psutil.Process().children(recursive=True)]
    helpers = sum(each.user + each.system + each.children_user + each.children_system for each in living)
    return helpers + sum(each.ru_utime + each.ru_stime for each in used)


def cost(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall-clock and CPU seconds."""
    before, started = cpu_s(), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run()
    return time.perf_counter() - started, cpu_s() - before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_scores_a_second(name: str) -> None:
    inputs = Inputs(SETS[name]())
    runner = asyncio.Runner() if hasattr(asyncio, "Runner") else None
    loop = runner.get_loop() if runner is not None else asyncio.new_event_loop()

    def run(work: Callable[[Inputs], Awaitable[None]]) -> None:
        forget()
        loop.run_until_complete(work(inputs))

    kinds = {"ours": lambda: run(ours), "naive": lambda: run(naive)}
    for each in kinds.values():  # processes are started, modules imported
        cost(each)
    rounds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in (*kinds, "prime")}
    for number in range(ROUNDS):
        for kind, each in kinds.items():
            rounds[kind].append(cost(each))
        if number == 0:  # it starts 64 processes for each batch
            rounds["prime"].append(cost(lambda: prime(inputs)))
    if runner is not None:
        runner.close()
    else:
        loop.close()
    wall = {kind: median(found[0] for found in costs) for kind, costs in rounds.items()}
    cpu = {kind: median(found[1] for found in costs) for kind, costs in rounds.items()}
    share = median(theirs[0] / own[0] for own, theirs in zip(rounds["ours"], rounds["naive"], strict=True))
    count = len(inputs.cases)
    over_prime = wall["prime"] / wall["ours"]
    for kind in rounds:
        print(f"\n{name}, {kind}: {count / wall[kind]:,.0f}/s, {1e6 * cpu[kind] / count:,.0f} us of CPU each", end="")
    print(f"\n{name}: {share:.1f} times naive, {over_prime:.1f} times prime")
    assert min(share, over_prime) >= (2.0 if name in TWICE else 1.0)


def test_leetcode_programs_a_second() -> None:
    """Published solutions with about 100 tests each: one process for all tests of a program, one for the program."""
    rows = [
        json.loads(line)
        for line in gzip.decompress(shared("code/leetcode_test_odd.jsonl.gz").read_bytes()).splitlines()
    ][::4]
    truths = [{key: row[key] for key in ("test", "entry_point", "prompt")} for row in rows]

    async def score() -> list[Any]:
        jobs = zip(rows, truths, strict=True)
        scorer = SCORERS["code"].using(all_or_nothing=True)
        return await asyncio.gather(*(score_answer(scorer, f"```python\n{r['completion']}\n```", t) for r, t in jobs))

    started = time.perf_counter()
    assert set(asyncio.run(score())) == {1.0}
    print(f"\nLeetCode: {len(rows) / (time.perf_counter() - started):.2f} programs a second", end="")


PLAIN = {
    "gsm8k, ####": ("openai/gsm8k", WORDING * 6 + "\n#### 1234", "1234"),
    "gsm8k, with a comma": ("openai/gsm8k", WORDING * 6 + "\n#### 1,234", "1234"),
    "gsm8k, wrong": ("openai/gsm8k", WORDING * 6 + "\n#### 17", "1234"),
    "qa": ("searchR1_nq", "<answer>Paris</answer>", {"target": ["Paris"]}),
    "qa, long": ("searchR1_nq", WORDING * 6 + "<answer>The Paris, France</answer>", {"target": ["Rome", "Paris"]}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_strings_cost_no_more_than_by_verls_own(name: str) -> None:
    def seconds(score: Callable[..., Any]) -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            started = time.process_time()
            for _ in range(5_000):
                score(*PLAIN[name], {})
            return time.process_time() - started

    times = [(seconds(default_compute_score), seconds(compute_score)) for _ in range(15)]
    share = min(theirs for theirs, _ in times) / min(own for _, own in times)
    print(f"\n{name}: {share:.2f} times verl's own", end="")
    assert share >= 1.0


@pytest.mark.filterwarnings("ignore")
def test_mathematics_costs_a_fraction_of_math_verify() -> None:
    from math_verify import parse, verify

    cases = [case for case in lines("math.jsonl") if "9^{9" not in case["answer"] and "10^{9}" not in case["answer"]]

    def ours() -> None:
        forget()
        for case in cases:
            score_now(SCORERS["math"].using(strict=True), f"So it is $\\boxed{{{case['answer']}}}$.", case["truth"])

    def theirs() -> None:
        for case in cases:
            with contextlib.suppress(Exception):
                verify(parse(f"\\boxed{{{case['truth']}}}"), parse(f"So it is $\\boxed{{{case['answer']}}}$."))

    for each in (ours, theirs):
        cost(each)
    share = median(cost(theirs)[0] / cost(ours)[0] for _ in range(3))
    print(f"\nmath, strict: {share:.1f} times math-verify", end="")
    assert share >= 3.7


@pytest.mark.filterwarnings("ignore")
def test_nothing_holds_up_the_event_loop() -> None:
    """The longest time between two turns of a task that does nothing, while hostile texts are scored.

    The lesser of two tries, for other load on the machine is not ours.
    """

    async def longest(name: str, text: str) -> float:
        worst = 0.0
        forget()
        done = asyncio.ensure_future(score_answer(scorer_of(name), text, TRUTHS[name]))
        while not done.done():
            started = time.perf_counter()
            await asyncio.sleep(0)
            worst = max(worst, time.perf_counter() - started)
        done.exception()
        return worst

    async def measure() -> list[tuple[float, str, str]]:
        await score_answer(SCORERS["code"], "print(18)", TRUTHS["code"])  # the sandbox is started
        found = []
        for name in TRUTHS:
            for title, text in TEXTS.items():
                found.append((min([await longest(name, text), await longest(name, text)]), name, title))
        return sorted(found, reverse=True)

    blocks = asyncio.run(measure())
    for seconds, name, title in blocks[:5]:
        print(f"\n{1000 * seconds:.1f} ms: {name}, {title}", end="")
    assert 1000 * blocks[0][0] <= BLOCK_MS
