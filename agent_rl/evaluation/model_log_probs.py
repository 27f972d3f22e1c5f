"""`ModelLogProbs`: recomputes the log-probs of stored tokens at one or several temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_rl.errors import ConfigError

FACTORS = (0.1, 0.5, 0.8, 1.25, 2.0)
"""Multiples of the requested temperature that are tested as candidates for the true sampling temperature."""
PART = 256
"""Number of tokens whose logits are converted to float64 at a time."""


class ModelLogProbs:
    """A model on this machine's CPU.

    Args:
        folder: folder or name of the model.

    Raises:
        ConfigError: transformers cannot load the model.
    """

    def __init__(self, folder: str) -> None:
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        try:
            self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        except (OSError, ValueError, SafetensorError) as error:
            problem = f"transformers cannot load {folder!r} ({str(error).splitlines()[0]})"
            raise ConfigError("--model", problem, "Pass the folder of the model's weights") from None

    def __call__(self, ids: list[int]) -> list[float]:
        """Return the log-probability of every token but the first."""
        return list(self.at_temperatures(ids, [1.0])[0].tolist())

    def at_temperatures(self, ids: list[int], temperatures: Sequence[float]) -> np.ndarray[Any, Any]:
        """Return the log-probs as an array with one row per temperature and one column per token but the first."""
        import torch

        ids_1T = torch.tensor([ids])
        with torch.no_grad():
            logits_TV = self._model(ids_1T).logits[0, :-1]
        parts = zip(logits_TV.split(PART), ids_1T[0, 1:, None].split(PART), strict=True)
        rows = [[_log_probs(*part, each) for each in temperatures] for part in parts]
        return np.concatenate(rows, axis=1)


def _log_probs(logits_TV: Any, chosen_T1: Any, temperature: float) -> Any:
    return (logits_TV.double() / temperature).log_softmax(-1).gather(1, chosen_T1)[:, 0].numpy()
