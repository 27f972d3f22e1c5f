"""Named in VERL_USE_EXTERNAL_MODULES: what each estimator of verl's makes of the batch that is trained on."""

import copy
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus_baseline")


def _keep(module: ModuleType) -> None:
    original = module.estimate

    def advantages(data: Any, batch_keys: list[str]) -> dict[str, list[float]]:
        mask = data.batch["response_mask"].bool()
        return {key: data.batch["advantages"][row][mask[row]].tolist() for row, key in enumerate(batch_keys)}

    def compute(data: Any, batch_keys: list[str], adv_estimator: str, **options: Any) -> Any:
        found = {}
        for name in ESTIMATORS:
            made = original(copy.deepcopy(data), batch_keys, name, **options)
            found[name] = advantages(made, batch_keys)
        data = original(data, batch_keys, adv_estimator, **options)
        found["trained"] = advantages(data, batch_keys)
        (Path(os.environ["PROBE_DIR"]) / "estimators.json").write_text(json.dumps(found))
        return data

    module.estimate = compute  # type: ignore[attr-defined]


wrapt.register_post_import_hook(_keep, "agent_rl.verl_adapter.trainer")
