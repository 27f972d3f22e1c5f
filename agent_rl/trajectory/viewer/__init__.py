"""The viewer shows trajectories from runs, evaluations and other programs as web pages, with a search index on disk.

The viewer reads files and never writes into a run's folder. The viewer's code must not depend on verl, or on how a run
is started.
"""
