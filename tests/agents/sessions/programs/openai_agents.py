"""OpenAI's Agents SDK; it calls the responses API."""

from agents import Agent, Runner, function_tool


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = Agent(name="Calculator", instructions="Use the tool.", model="policy", tools=[add])
print(Runner.run_sync(agent, "1 + 2?").final_output)
