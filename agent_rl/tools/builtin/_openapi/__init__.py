"""Inside of `openapi`: one operation, and schemas in today's JSON schema."""
