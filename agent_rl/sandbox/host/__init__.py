"""The code in the trainer's process: starts zygotes, sends them programs, and grades the results.

It uses the jail only through its protocol. It must not run or unpickle anything that a program wrote, nor import verl.
"""
