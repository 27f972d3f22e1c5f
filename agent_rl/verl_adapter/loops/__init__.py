"""verl's agent loops, one for each of our agents."""
