"""The code in the trainer's process: starts zygotes, sends them programs, and grades the results.

Talks to the jail through its protocol; must not run or unpickle anything that a program wrote, nor import verl.
"""
