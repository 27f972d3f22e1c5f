"""Inside of the tool `calculator`: reading an expression and computing exact values; scorers use both as well."""
