"""Before anything imports verl: the platform, and the one warning that its import raises."""

import os
import warnings

os.environ.setdefault("VERL_PLATFORM", "cpu")

with warnings.catch_warnings():
    # Ray's own module raises it while verl imports it.
    warnings.filterwarnings("ignore", "Ray state API is no longer experimental", DeprecationWarning)
    import verl.experimental.agent_loop  # noqa: F401
