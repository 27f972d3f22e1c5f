"""The commands meet the same rows, tools and models as what they call."""

from tests.doctor.conftest import tiny_model
from tests.evaluation.conftest import data, model_dir, tools

__all__ = ["data", "model_dir", "tiny_model", "tools"]
