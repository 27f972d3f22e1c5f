"""What `import agent_rl.rewards` must not load."""

import subprocess
import sys


def test_the_rewards_are_imported_without_heavy_libraries() -> None:
    heavy = {"torch", "verl", "sympy", "ray", "math_verify", "numpy", "omegaconf"}
    code = f"import sys, agent_rl.rewards; print({heavy} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
