"""The cases of the doctor's checks."""

from tests.launch.doctor.conftest import configs, make_case, parquet, rows, three_b, tiny_model

__all__ = ["configs", "make_case", "parquet", "rows", "three_b", "tiny_model"]
