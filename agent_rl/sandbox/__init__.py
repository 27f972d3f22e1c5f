"""Runs untrusted Python: programs, sessions that keep their variables, and grading with test cases.

`jail` runs in the confined processes and in those that fork them, and `host` runs in the trainer's process. The package
must not import tools, rewards or verl. `fusion` is a client for Sandbox Fusion, a server with the same purpose.
"""

from agent_rl.sandbox.host.cases import Case, FunctionCase, StdioCase, read_cases
from agent_rl.sandbox.host.execution import Execution, ExecutionStatus, IsolationReport
from agent_rl.sandbox.host.grading import CaseResult, GradeReport, grade
from agent_rl.sandbox.host.places import in_a_place
from agent_rl.sandbox.host.sandbox import PythonSandbox
from agent_rl.sandbox.host.sessions import SandboxSession
from agent_rl.sandbox.host.shared import TOOL_CONCURRENCY, UNBOUNDED, raise_if_not_run, repeated_if_busy, shared_sandbox
from agent_rl.sandbox.host.testing import PythonTests, grade_by_tests

__all__ = [
    "TOOL_CONCURRENCY",
    "UNBOUNDED",
    "Case",
    "CaseResult",
    "Execution",
    "ExecutionStatus",
    "FunctionCase",
    "GradeReport",
    "IsolationReport",
    "PythonSandbox",
    "PythonTests",
    "SandboxSession",
    "StdioCase",
    "grade",
    "grade_by_tests",
    "in_a_place",
    "raise_if_not_run",
    "read_cases",
    "repeated_if_busy",
    "shared_sandbox",
]
