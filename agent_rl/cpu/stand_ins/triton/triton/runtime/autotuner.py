"""Stand-in: the tuner's types, for `isinstance` and `except`."""


class OutOfResources(Exception):
    """Never raised on a CPU."""


class PTXASError(Exception):
    """Never raised on a CPU."""


class Autotuner:
    """Never made on a CPU."""
