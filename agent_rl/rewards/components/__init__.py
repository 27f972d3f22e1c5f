"""The components of a reward that need no judge and no model, one file a kind."""
