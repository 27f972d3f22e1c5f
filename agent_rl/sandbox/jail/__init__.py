"""The code in the zygote and in the confined processes that it forks.

It uses only the standard library and no absolute imports, because a zygote loads this folder under another name. It
must not import `host`.
"""
