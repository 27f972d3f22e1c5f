"""The code in the trainer's process: starts zygotes, sends them programs, and grades the results.

This code uses the jail only through its protocol. It must not run or unpickle what a program wrote, or import verl.
"""
