"""`Section`: the base class of every configuration section."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the configuration, in which unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
