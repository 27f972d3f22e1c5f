"""The code in the trainer's process: starts zygotes, sends them programs, and grades the results.

This package uses the jail only through its protocol. It must not import verl, or run or unpickle programs' output.
"""
