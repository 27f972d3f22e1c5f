"""Stand-in: image transforms, second version."""
