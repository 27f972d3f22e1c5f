"""Breaks real trainings at random moments and checks that none of them loses anything: `make faults`.

    python -m benchmarks.faults [runs]     # executes the cases that are missing, then writes docs/reference/faults.json
    python -m benchmarks.faults 50 engine  # only the cases of these kinds

`runs` trainings are killed (spread over six kinds), and each other kind has one for every 25 of them. A case is stored
when it has ended, so that the command can be stopped and given again; a case with a problem runs again then. Each runs
in namespaces of its own, which needs a kernel with user namespaces (`unshare`).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from agent_rl.launch.run_folder import machine, versions
from benchmarks.faulted_run import KILLS, KINDS
from benchmarks.namespaces import ROOT, execute_inside
from benchmarks.training_run import RECIPE, SAVED, STEPS, UNDISTURBED, folder_of

RESULTS = ROOT / "docs/reference/faults.json"
CASE_S = 2400
"""Seconds after which a case is given up."""


def main(runs: int, kinds: set[str]) -> None:
    """Execute the missing cases, and store each when it has ended."""
    record: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"cases": {}}
    record |= {
        "command": "make faults",
        "runs": max(runs, record.get("runs", 0)),
        "kills": list(KILLS),
        "steps": STEPS,
        "saved": SAVED,
        "versions": versions(),
        "machine": machine(RECIPE / "model"),
    }
    if UNDISTURBED not in record:
        record[UNDISTURBED] = _execute(UNDISTURBED, 0, {})
    _store(record)
    for kind, number in _cases(runs):
        name = f"{kind} {number}"
        if (kinds and kind not in kinds) or not record["cases"].get(name, {"problems": [name]})["problems"]:
            continue
        print(time.strftime("%H:%M:%S"), name, flush=True)
        result = _execute(kind, number, record[UNDISTURBED])
        if not result:
            print(f"  the case itself failed; its files are in {folder_of(kind, number)}", flush=True)
            continue
        record["cases"][name] = result
        _store(record)
        print(f"  {result['what']}: {[end['status'] for end in result['ends']]} {result['problems']}", flush=True)


def _cases(runs: int) -> Iterator[tuple[str, int]]:
    """Yield every case, one of each kind before the second of any."""
    for number in range(runs):
        for kind in KINDS:
            if number < (-(-(runs - KILLS.index(kind)) // len(KILLS)) if kind in KILLS else max(1, runs // 25)):
                yield kind, number


def _execute(kind: str, number: int, undisturbed: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a case, or nothing if it could not be executed."""
    words = ("benchmarks.faulted_run", kind, str(number))
    done = execute_inside(*words, given=json.dumps(undisturbed), limit_s=CASE_S)
    if done.returncode:
        return {}
    result: dict[str, Any] = json.loads(done.stdout)
    if undisturbed:  # a case that passes has the same
        del result["order"], result["left"]
    if not result["problems"]:
        shutil.rmtree(folder_of(kind, number))
    return result


def _store(record: dict[str, Any]) -> None:
    temporary = RESULTS.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(RESULTS)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50, set(sys.argv[2:]))
