"""smolagents' agent that writes code, with its default prompt."""

import os

from smolagents import CodeAgent, OpenAIServerModel

model = OpenAIServerModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
print(CodeAgent(tools=[], model=model, verbosity_level=0).run("1 + 2?"))
