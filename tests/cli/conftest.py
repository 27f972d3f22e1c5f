"""The commands meet the same rows, tools and models as what they call."""

from tests.evaluation.conftest import data, model_dir, tools
from tests.launch.doctor.conftest import tiny_model

__all__ = ["data", "model_dir", "tiny_model", "tools"]
