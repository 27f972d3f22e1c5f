"""The code in the trainer's process, which starts zygotes, sends them programs, and grades the results.

This package uses the jail only through its protocol. It must not import verl, and must not run or unpickle a program's
output.
"""
