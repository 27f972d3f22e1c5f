"""Inside of the tool `calculator`: reading an expression, and computing it on exact values; scorers use both as well."""
