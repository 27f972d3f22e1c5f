"""The code in the zygote and in the confined processes that it forks.

The code uses only the standard library and no absolute imports, because a zygote loads this folder under another name.
The jail must not import `host`.
"""
