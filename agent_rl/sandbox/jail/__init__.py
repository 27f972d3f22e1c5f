"""The code in the zygote and in the confined processes that it forks.

Standard library only and no absolute imports: a zygote loads this folder under another name. Must not import `host`.
"""
