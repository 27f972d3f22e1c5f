"""Runs the classes of this folder under TRL's own `GRPOTrainer`, and records what it shows and pays.

    pip install trl==1.16.0 jmespath
    python -m tests.environments.trl.reference

The model is a random one; `_generate_single_turn` returns the turns of a file's SCRIPT instead of the model's. Each row
has two samples. It writes recorded.json: the schemas of the tools, the messages and the rewards.
"""

import argparse
import hashlib
import importlib
import json
import math
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded.json"
IDIOMS = (
    "counter",
    "echo",
    "game_over",
    "prompt_from_reset",
    "async_reward",
    "reward_funcs",
    "factories",
    "one_of_two",
    "image_blocks",
    "tools",
)
SAMPLES = 2


def as_data(value):
    """Return messages as JSON data; an image becomes its size and a digest of its pixels."""
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    if hasattr(value, "tobytes"):
        return [*value.size, hashlib.sha256(value.tobytes()).hexdigest()[:8]]
    return value


class Recorded(Exception):
    """Ends the training after the first batch is scored."""


def trainer_class():
    from transformers.utils import get_json_schema
    from trl import GRPOTrainer

    class Scripted(GRPOTrainer):
        script: list
        record: dict

        def _generate_single_turn(self, prompt_ids, *_, **__):
            header = self._tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
            if not hasattr(self, "openings"):  # the first turn: all samples of a row, row after row
                self.openings = [list(ids) for ids in prompt_ids]
            turns = []
            for ids in prompt_ids:
                sample = next(n for n, opening in enumerate(self.openings) if ids[: len(opening)] == opening)
                rest = ids[len(self.openings[sample]) :]
                spoken = sum(rest[n : n + len(header)] == header for n in range(len(rest)))
                text = self.script[sample // SAMPLES][spoken]
                turns.append([*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id])
            return turns, None

        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            samples = [
                {
                    "messages": as_data([*prompt, *completion]),
                    "rewards": {
                        name: None if math.isnan(value) else round(value, 6)
                        for name, value in zip(self.reward_func_names, row, strict=True)
                    },
                    "total": None if all(map(math.isnan, row)) else round(sum(x for x in row if x == x), 6),
                }
                for prompt, completion, row in zip(prompts, completions, rewards.tolist(), strict=True)
            ]
            self.record["samples"] = samples[::SAMPLES]
            assert samples == [sample for sample in self.record["samples"] for _ in range(SAMPLES)]
            self.record["schemas"] = {
                str(name): [get_json_schema(tool) for tool in tools] for name, tools in self._env_tools.items()
            }
            raise Recorded

    return Scripted


def make_model(folder, vision):
    """Return a random model, and a tokenizer or processor with a chat template that TRL knows."""
    from transformers import (
        CLIPVisionConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        Qwen2Config,
        Qwen2ForCausalLM,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from trl.chat_template_utils import qwen3_chat_template, qwen3_vl_chat_template

    from agent_rl.cpu.tiny_model import make_tokenizer

    tokenizer = make_tokenizer(["count and echo"], folder / "tokenizer")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]})
    tokenizer.chat_template = qwen3_chat_template
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        num_key_value_heads=1,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        **size,
    )
    if not vision:
        return Qwen2ForCausalLM(text), tokenizer
    config = LlavaConfig(
        text_config=text,
        vision_config=CLIPVisionConfig(image_size=28, patch_size=14, projection_dim=16, **size),
        image_token_index=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
    )
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        patch_size=14,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        image_token="<|image_pad|>",
        chat_template=qwen3_vl_chat_template,
    )
    return LlavaForConditionalGeneration(config), processor


def run(idiom, folder):
    """Return what TRL records for one file."""
    from datasets import Dataset
    from trl import GRPOConfig

    module = importlib.import_module(f"tests.environments.trl.{idiom}")
    factory = getattr(module, "environment_factory", None)
    if factory is None:
        (factory,) = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "reset")
        ]
    data = getattr(module, "train_dataset", None)
    model, processing_class = make_model(folder, getattr(module, "VISION", False))
    trainer = trainer_class()(
        model=model,
        processing_class=processing_class,
        args=GRPOConfig(
            output_dir=str(folder / "run"),
            per_device_train_batch_size=SAMPLES * len(module.SCRIPT),
            num_generations=SAMPLES,
            max_completion_length=16384,
            max_steps=1,
            shuffle_dataset=False,
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list(data) if isinstance(data, list) else data,
        environment_factory=factory,
        reward_funcs=getattr(module, "reward_funcs", None),
        tools=getattr(module, "tools", None),
    )
    trainer.script, trainer.record = module.SCRIPT, {}
    try:
        trainer.train()
    except Recorded:
        return trainer.record
    raise AssertionError("no batch was scored")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RECORDED)
    out = parser.parse_args().out
    import transformers
    import trl

    lines = [f'"versions": {json.dumps({"trl": trl.__version__, "transformers": transformers.__version__})}']
    for idiom in IDIOMS:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(f'"{idiom}": {json.dumps(run(idiom, Path(folder)))}')
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
