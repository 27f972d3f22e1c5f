"""What imports verl: agent loops, reward manager, algorithms, served models, patches, and the plugin.

`plugin` is loaded by verl in every process; `patches` and `failures` are the places where verl has no extension point.
"""
