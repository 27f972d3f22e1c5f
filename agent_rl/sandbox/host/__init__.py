"""What runs in the trainer's process: starting zygotes, handing programs to them, and grading.

Speaks to the jail by its protocol; must not run or unpickle anything that a program wrote, and must not know verl.
"""
