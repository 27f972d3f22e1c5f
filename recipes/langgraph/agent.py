"""An agent on LangGraph: a model, its calculator, and the loop between them. Only `run` is for training."""

import ast
import operator
from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

OPERATIONS: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(node: ast.AST) -> int:
    """Return the value of a parsed expression."""
    if isinstance(node, ast.BinOp):
        return int(OPERATIONS[type(node.op)](value(node.left), value(node.right)))
    return int(ast.literal_eval(node))


@tool
def calculator(expression: str) -> str:
    """Compute an expression, for example 3*(4+5)."""
    return str(value(ast.parse(expression, mode="eval").body))


def build(model: ChatOpenAI) -> Any:
    """Return the compiled graph."""
    with_tools = model.bind_tools([calculator])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [with_tools.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([calculator], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def run(row: dict[str, Any], base_url: str, api_key: str) -> None:
    """Answer one row; the last message is the answer."""
    build(ChatOpenAI(model="policy")).invoke({"messages": row["prompt"]})
