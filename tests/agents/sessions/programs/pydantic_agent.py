"""Pydantic AI with a model of OpenAI, by its default API."""

from pydantic_ai import Agent

agent = Agent("openai:policy", instructions="Use the tool.")


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


print(agent.run_sync("1 + 2?").output)
