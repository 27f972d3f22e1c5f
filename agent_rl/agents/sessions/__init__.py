"""Lets a program talk to the policy over HTTP, as it would talk to OpenAI or Anthropic.

`session.Session` answers the requests of one episode and keeps the exact tokens. `server` serves the session under
the routes of the APIs (`chat`, `responses`, `messages`), and `program` runs the user's program.
"""
