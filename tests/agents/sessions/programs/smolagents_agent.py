"""smolagents' agent of tool calls, whose answer is a call of the tool `final_answer`."""

import os

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: a number.
        b: another number.
    """
    return a + b


model = OpenAIServerModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
print(ToolCallingAgent(tools=[add], model=model, verbosity_level=0).run("1 + 2?"))
