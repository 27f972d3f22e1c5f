"""Components of a reward that need no judge and no model; each class declares its `kind`, and is found by being here.

They know one trajectory, or one group; not their weight, and not each other.
"""
