"""Viewer: trajectories of runs, evaluations and other programs as pages on this machine, found by an index on disk.

It reads files and never writes into a run's folder. It must not know verl, or how a run is started.
"""
