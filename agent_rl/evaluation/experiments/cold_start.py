"""Makes a recipe's cold start on a generated world: rows, a small model, and supervised training on worked episodes.

The recipe's own agent runs the episodes with its tools (`agent_rl.evaluation.runner`), so the format, the observations,
the tokens and the mask are the same as in training. The episodes teach a mix of good and bad habits; the model then
chooses a habit at random, and reinforcement learning finds the best habit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.cpu import switch as cpu
from agent_rl.data import read_parquet, write_parquet
from agent_rl.data.worlds import World, load_world
from agent_rl.environments.worked import WORLD, worked_world
from agent_rl.errors import ConfigError
from agent_rl.evaluation.recipe import values_of
from agent_rl.evaluation.runner import Evaluation, run_scripts
from agent_rl.evaluation.settings import read_settings
from agent_rl.launch.composition import compose
from agent_rl.launch.run_folder import versions
from agent_rl.launch.supervised import train_supervised
from agent_rl.launch.task import is_task, require_experts
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.sections import ColdStartSettings, ColdStartStage
from agent_rl.trajectory import Trajectory
from agent_rl.verl_adapter.checkpoints import weights_digest
from agent_rl.verl_adapter.inspection import load_chat_tokenizer
from agent_rl.work.parts import replace_file
from agent_rl.work.progress import progress

EPISODES = "episodes"
"""Name of the split whose rows become worked episodes."""
SAMPLE = 300
"""Number of episodes whose text is used to train the tokenizer."""
SHORT, TOKENS_PER_GPU = 1024, 8192
"""The SFT trainer's default limits, which can only be raised: tokens per episode, and per forward pass on a GPU."""
MICRO = 16
"""Maximum number of episodes per forward pass on a CPU."""
MADE = "made.json"
"""File next to the model that records the settings and rows from which the model was made."""


class ColdStart:
    """The folder that a recipe's `agent_rl.cold_start` produces: train.parquet, test.parquet and model/.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides.

    Raises:
        ConfigError: the recipe cannot be composed, has no cold start on this platform, or its expert fails.
    """

    def __init__(self, recipe: str, overrides: Sequence[str] = ()) -> None:
        config = compose(recipe, overrides)
        section = AgentRLSettings.from_config(config)
        if (settings := section.cold_start) is None:
            if is_task(recipe):
                require_experts(recipe)
            remedy = "Set VERL_PLATFORM=cpu to train the recipe's CPU size, or add the section agent_rl.cold_start"
            raise ConfigError("agent_rl.cold_start", f"{recipe} has no cold start on this platform", remedy)
        self.config = config
        self.settings: ColdStartSettings = settings
        names = section.environments
        self.world: World = worked_world(names) if settings.world == WORLD else load_world(settings.world)
        self.folder = Path(str(config.actor_rollout_ref.model.path)).parent
        self.model = self.folder / "model"
        self._files = {"train": str(config.data.train_files), "test": str(config.data.val_files)}
        self._values = values_of(config)
        self._agent = config.actor_rollout_ref.rollout.agent.default_agent_loop
        self._devices = int(config.trainer.n_gpus_per_node)
        self._longest = int(config.data.max_prompt_length) + int(config.data.max_response_length)

    def make(self) -> bool:
        """Make the rows and the model unless they are up to date, and return whether anything was made.

        Trained stages are kept; after an interruption, the next call continues with the next stage.

        Raises:
            ConfigError: a batch cannot be divided among the devices, or there are too few episodes for a batch.
            KeyboardInterrupt: the user interrupted the work; the message states how many stages are kept.
        """
        request = {
            "settings": self.settings.model_dump(mode="json", exclude_none=True), "rows_sha256": self.rows_digest()
        }  # fmt: skip
        if self.world.version:
            request["environments_sha256"] = self.world.version
        record = self._load_record(request)
        if "model_sha256" in record:
            return False
        self._check_batch()
        rows, stages, losses = self.write_rows(), self.settings.stages, record.get("losses", [])
        model = self._stage(len(losses)) if losses else self._first_model(rows[EPISODES])
        tokenizer = self.chat(model)
        try:
            for number, stage in enumerate(stages[len(losses) :], start=len(losses) + 1):
                file = self._write_episodes(rows[EPISODES], tokenizer, stage, number)
                losses.append(self._train(model, file, self._stage(number), stage))
                self._write_record({**request, "losses": losses})
                model = self._stage(number)
        except KeyboardInterrupt:
            summary = f"{len(losses)} of {len(stages)} stages are kept in {self.folder}" if losses else ""
            raise KeyboardInterrupt(summary) from None
        self._write_record(
            {**request, "losses": losses, "model_sha256": weights_digest(self.model), "versions": versions()}
        )
        return True

    def chat(self, model: Path) -> ChatTokenizer:
        """Return the tokenizer in a model's folder, with the chat template that the recipe uses in training."""
        return load_chat_tokenizer(
            str(model), self._values["apply_chat_template_kwargs"], self._values["custom_chat_template"]
        )

    def has_rows(self) -> bool:
        """Whether the rows are available, either because they are generated or because the data set's files exist."""
        return self.settings.rows is None or all(Path(file).expanduser().is_file() for file in self._files.values())

    def rows_digest(self) -> str:
        """Return the SHA-256 of the rows, which does not depend on their folder."""
        with tempfile.TemporaryDirectory() as folder:
            rows = json.dumps(self.rows(Path(folder)), sort_keys=True, default=str).replace(folder, ".")
        return hashlib.sha256(rows.encode()).hexdigest()

    def write_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Write the rows of each split and the files that the tools need; return the rows."""
        splits = self.rows(self.folder)
        for split, rows in splits.items():
            write_parquet(rows, self.folder / f"{split}.parquet")
        return splits

    def rows(self, folder: Path) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each split; write the files that the tools need into a folder.

        Raises:
            ConfigError: the world has fewer rows than the settings require.
        """
        settings = self.settings
        counts = {"test": settings.held_out, EPISODES: settings.episode_rows, "train": settings.train_rows}
        if settings.rows == "recipe":
            known = {split: read_parquet(Path(file).expanduser()) for split, file in self._files.items()}
            known |= {EPISODES: [row for row in known["train"] if self.world.works(row)]}
            if not known[EPISODES]:
                problem = f"the {settings.world} world cannot solve any row in {self._files['train']}"
                raise ConfigError("agent_rl.cold_start.rows", problem, "Change the world, or data.train_files")
            known[EPISODES] += self.world.more(known[EPISODES], known["test"])
            splits = {split: known[split][:count] for split, count in counts.items()}
        else:
            splits = self.world.write(folder, settings.seed, counts)
            for split, rows in splits.items():
                if len(rows) < counts[split]:
                    problem = f"the world has {len(rows)} rows for {split}, but {counts[split]} are needed"
                    raise ConfigError("agent_rl.cold_start", problem, "Lower the number of rows")
        if self._agent == "gateway_agent":  # tool_call_agent needs no program, but yields the same tokens
            for split, rows in splits.items():
                for row in rows:
                    row["agent_name"] = "tool_call_agent" if split == EPISODES else self._agent
        return splits

    def run(
        self, mix: Mapping[str, float], split: str, chat: ChatTokenizer, seed: str, limit: int | None = None
    ) -> list[Trajectory]:
        """Run and score episodes with a mix of habits on the rows of a split, or on its first `limit` rows.

        Raises:
            ConfigError: the mix names a habit that the world does not have.
        """
        for name in mix.keys() - self.world.habits.keys():
            known = ", ".join(self.world.habits)
            raise ConfigError("agent_rl.cold_start.stages.mix", f"there is no habit {name!r}", f"Known: {known}")
        flags = {"model": str(self.model), "data": str(self.folder / f"{split}.parquet"), "limit": limit}
        settings = read_settings(flags, [], self._values)
        evaluation = Evaluation.load(settings)
        scripts = []
        for number, row in enumerate(evaluation.rows):
            rng = random.Random(f"{seed}/{number}")
            habit = self.world.habits[rng.choices(list(mix), list(mix.values()))[0]]
            scripts.append(habit(row, rng))
        with progress("worked episodes", len(scripts)) as advance:
            return asyncio.run(run_scripts(evaluation, chat, scripts, advance))

    def _load_record(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored record if it matches the request, else {}; a finished model's record has `model_sha256`."""
        file = self.folder / MADE
        record: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
        if record.items() >= request.items() and (self._stage(len(record["losses"])) / "config.json").is_file():
            return record
        file.unlink(missing_ok=True)
        return {}

    def _write_record(self, record: Mapping[str, Any]) -> None:
        replace_file(self.folder / MADE, json.dumps(record, indent=2) + "\n")

    def _stage(self, number: int) -> Path:
        """Return the folder that contains the model after a stage."""
        return self.model if number == len(self.settings.stages) else self.folder / f"stage_{number}"

    def _check_batch(self) -> None:
        """Reject a batch that cannot be divided among the devices, because the trainer would drop episodes or fail."""
        batch, micro = self.settings.batch, self.settings.micro_batch
        if batch % self._devices:
            problem = f"{batch} episodes cannot be divided among {self._devices} devices (trainer.n_gpus_per_node)"
            raise ConfigError("agent_rl.cold_start.batch", problem, f"Choose a multiple of {self._devices}")
        share = batch // self._devices
        if micro is not None and share % micro:
            problem = f"each device gets {share} episodes of a batch, which cannot be divided by {micro}"
            raise ConfigError("agent_rl.cold_start.micro_batch", problem, f"Choose a divisor of {share}")

    def _first_model(self, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Return the initial model: the base model, or random weights with a tokenizer for the world's episodes.

        Raises:
            ConfigError: the base model does not exist.
        """
        from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

        if self.settings.base is not None:
            base = Path(self.settings.base).expanduser()
            if not (base / "config.json").is_file():
                remedy = "Make the model as the recipe's README describes, or choose another folder"
                raise ConfigError("agent_rl.cold_start.base", f"there is no model in {base}", remedy)
            return base
        folder, shape = self.folder / "stage_0", self.settings.model
        make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=1)
        mix = self.settings.stages[-1].mix
        worked = self.run(mix, EPISODES, self.chat(folder), "words", SAMPLE)
        texts = ["user", "assistant"]
        for trajectory in worked:
            texts += [str(message.content) for message in trajectory.prompt]
            texts += [text for turn in trajectory.turns for text in (turn.text, turn.observation) if text]
        tokenizer = make_tokenizer(texts, folder, shape.vocabulary)
        make_model(folder, tokenizer, seed=self.settings.seed, **shape.model_dump(exclude={"vocabulary"}))
        return folder

    def _write_episodes(
        self, rows: Sequence[Mapping[str, Any]], chat: ChatTokenizer, stage: ColdStartStage, number: int
    ) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        worked = self.run(stage.mix, EPISODES, chat, f"{self.settings.seed}/{number}")
        sequences = [sequence for trajectory in worked for sequence in trajectory.info["tokens"]["sequences"]]
        file = self.folder / f"stage_{number}.parquet"
        if len(sequences) < self.settings.batch:
            problem = f"a batch has {self.settings.batch} episodes, but only {len(sequences)} were run"
            raise ConfigError(
                "agent_rl.cold_start.batch", problem, "Lower the batch size, or raise agent_rl.cold_start.episode_rows"
            )
        names = ("prompt_ids", "response_ids", "mask")
        pq.write_table(pa.Table.from_pylist([{name: item[name] for name in names} for item in sequences]), file)
        return file

    def _train(self, model: Path, episodes: Path, target: Path, stage: ColdStartStage) -> float:
        with progress(f"steps to {target.name}", stage.steps) as advance:
            return train_supervised(
                model, episodes, target, stage.steps, self._overrides(stage), self._devices,
                lambda loss: advance(note=f"{target.name}: loss {loss:.3f}"),
            )  # fmt: skip

    def _overrides(self, stage: ColdStartStage) -> list[str]:
        micro, length = self.settings.micro_batch, max(SHORT, self._longest)
        if micro is None and cpu.is_selected():
            micro = math.gcd(MICRO, self.settings.batch // self._devices)
        return [
            *([] if micro is None else ["data.use_dynamic_bsz=False", f"data.micro_batch_size_per_gpu={micro}"]),
            f"data.max_length={length}",
            f"data.max_token_len_per_gpu={max(TOKENS_PER_GPU, length)}",
            f"data.train_batch_size={self.settings.batch}",
            f"optim.lr={stage.lr}",
            f"optim.lr_warmup_steps={min(30, stage.steps // 5)}",
            "optim.lr_scheduler_type=cosine",
            "optim.min_lr_ratio=0.02",
            "optim.betas=[0.9,0.99]",
            "optim.weight_decay=0.0",
            f"engine.seed={self.settings.seed}",
        ]
