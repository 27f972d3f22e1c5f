"""The scorers that ours are compared with, each as `(answer or response, truth) -> whether it is right`."""

import contextlib
import io
from collections.abc import Callable
from typing import Any


def math_verify(answer: str, truth: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"\\boxed{{{truth}}}"), parse(f"\\boxed{{{answer}}}")))


def math_reward(answer: str, truth: str) -> bool:
    from verl.utils.reward_score import math_reward as verls

    return verls.compute_score(f"\\boxed{{{answer}}}", truth) == 1


def math_dapo(answer: str, truth: str) -> bool:
    from verl.utils.reward_score import math_dapo as verls

    return bool(verls.compute_score(f"Answer: {answer}", truth)["acc"])


def prime_math(answer: str, truth: str) -> bool:
    from verl.utils.reward_score import prime_math as verls

    return bool(verls.compute_score(f"\\boxed{{{answer}}}", truth)[0])


def geo3k(answer: str, truth: str) -> bool:
    from verl.utils.reward_score import geo3k as verls

    return verls.acc_reward(f"\\boxed{{{answer}}}", truth) == 1


def gsm8k_strict(response: str, truth: Any) -> bool:
    from verl.utils.reward_score import gsm8k as verls

    return verls.compute_score(response, str(truth)) == 1


def gsm8k(response: str, truth: Any) -> bool:
    from verl.utils.reward_score import gsm8k as verls

    return verls.compute_score(response, str(truth), method="flexible") == 1


def search_r1(response: str, truth: Any) -> bool:
    from verl.utils.reward_score import search_r1_like_qa_em as verls

    target = truth["target"] if isinstance(truth, dict) else truth
    target = [str(target)] if isinstance(target, str | int) else target
    return verls.compute_score(response, {"target": target}) == 1


def _quiet(scorer: Callable[..., bool]) -> Callable[..., bool]:
    def run(answer: str, truth: Any) -> bool:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                return scorer(answer, truth)
            except Exception:  # some of them raise on what they cannot read: that is no point
                return False

    return run


MATH = {scorer.__name__: _quiet(scorer) for scorer in (math_verify, math_reward, math_dapo, prime_math, geo3k)}
"""Of mathematical answers without their box."""
PROSE = {"gsm8k": _quiet(gsm8k), "gsm8k_strict": _quiet(gsm8k_strict), "qa_em": _quiet(search_r1)}
"""Of responses, by the name of the scorer of ours."""
