"""The end-to-end tests' model and their way to find a run's processes."""

from tests.e2e.conftest import run_processes, tiny_model

__all__ = ["run_processes", "tiny_model"]
