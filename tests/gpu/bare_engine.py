"""Tokens a second of SGLang without trainer and agents, for the model of the other pieces: prints one line of JSON."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from agent_rl.launch.environment import gpu_environment
from tests.gpu.training_run import make_inputs

PROMPTS, PROMPT_TOKENS, TOKENS = 32, 128, 256


def main(out: Path) -> None:
    """Generate twice; the second time counts, after kernels are compiled and graphs captured."""
    make_inputs(out)
    os.environ.update(gpu_environment())
    import sglang

    engine = sglang.Engine(
        model_path=str(out / "model"),
        mem_fraction_static=0.3,
        attention_backend="flashinfer",
        cuda_graph_max_bs=PROMPTS,
        disable_piecewise_cuda_graph=True,
        log_level="error",
    )
    prompts = [[random.Random(row).randrange(3, 500) for _ in range(PROMPT_TOKENS)] for row in range(PROMPTS)]
    parameters = {"max_new_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True}
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        answers = engine.generate(input_ids=prompts, sampling_params=parameters)
        seconds.append(time.perf_counter() - started)
    engine.shutdown()
    tokens = sum(answer["meta_info"]["completion_tokens"] for answer in answers)
    print("\n" + json.dumps({"requests": PROMPTS, "tokens": tokens, "tokens/s": tokens / seconds[-1]}))


if __name__ == "__main__":  # the engine starts its processes by importing this module
    main(Path(sys.argv[1]))
