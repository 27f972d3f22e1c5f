"""Inside of the tool `calculator`: the grammar, which scorers of mathematics read by as well, and exact values."""
