"""Stand-in: what torch's inductor imports by name."""


class ASTSource:
    """Never made on a CPU."""


def triton_key() -> str:
    """Part of torch's cache key."""
    return "stand-in"
