"""What a `FaultyServer` answers as Sandbox Fusion does: it really runs the code, without isolation."""

import json
import subprocess
import sys

from tests.support.http_faults import answer

SANDBOX_ERROR = answer(200, {"status": "SandboxError", "message": "exception on running code", "run_result": None})


def run_code(handler):
    """POST /run_code."""
    asked = json.loads(handler.body)
    command, stdin = [sys.executable, "-I", "-c", asked["code"]], asked.get("stdin")
    result = {"status": "Finished", "execution_time": 0.1}
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=asked["run_timeout"])
        result |= {"return_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    except subprocess.TimeoutExpired as error:
        result |= {"status": "TimeLimitExceeded", "stdout": (error.stdout or b"").decode(), "stderr": ""}
    status = "Success" if result.get("return_code") == 0 else "Failed"
    answer(200, {"status": status, "message": "", "compile_result": None, "run_result": result, "files": {}})(handler)
