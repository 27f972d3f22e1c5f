"""The checks that need verl, in a process of their own: `python -m agent_rl.doctor.child CONFIG ANSWER`.

Importing verl takes seconds and prints; if it crashes, the doctor still shows the other findings.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from agent_rl.doctor.case import Case
from agent_rl.doctor.check import Needs
from agent_rl.doctor.diagnosis import run_checks
from agent_rl.verl_adapter import inspection

__all__ = ["main"]


def main(config_file: str, answer: str) -> None:
    """Read the configuration, run the checks, write the findings as JSON."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models that are not on this machine are not checked
    inspection.is_registered()  # imports verl first, in this thread: its own imports must not meet a half-loaded module
    config = OmegaConf.load(config_file)
    assert isinstance(config, DictConfig)
    findings = run_checks(Case(config=config), Needs.VERL)
    Path(answer).write_text(json.dumps([finding.to_dict() for finding in findings]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # without waiting for what verl has started in the background
