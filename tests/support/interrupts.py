"""Interrupts of child processes."""

import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: heed SIGINT, also where the tests themselves run in a background that ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
