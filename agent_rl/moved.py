"""Where modules and names of earlier versions are now: an import of an old path fails with the new one.

Add a line here for every public module that moves. The table is read only when an import of this package fails.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["MOVED", "spec_of"]

MOVED = {
    "algorithms.remax": "verl_adapter.algorithms.remax",
    "algorithms.remax_rollout": "verl_adapter.algorithms.remax_rollout",
    "backend.attention": "cpu.attention",
    "backend.cpu": "cpu.switch",
    "backend.engine": "cpu.engine",
    "backend.failures": "verl_adapter.failures",
    "backend.grammar": "cpu.grammar",
    "backend.late_scoring": "verl_adapter.late_scoring",
    "backend.local_reward": "verl_adapter.local_reward",
    "backend.patches": "verl_adapter.patches",
    "backend.placeholder": "cpu.placeholder",
    "backend.platform": "cpu.platform",
    "backend.resume": "verl_adapter.resume",
    "backend.reward_model": "verl_adapter.served_models",
    "backend.rollout": "cpu.rollout",
    "backend.served_addresses": "verl_adapter.served_models",
    "backend.served_models": "verl_adapter.served_models",
    "backend.server": "cpu.server",
    "backend.shared_memory": "cpu.shared_memory",
    "backend.speed": "cpu.speed",
    "backend.stand_ins": "cpu.stand_ins",
    "backend.tiny_model": "cpu.tiny_model",
    "cli.app": "cli.main.app",
    "doctor.command": "cli.doctor",
    "doctor.finding": "doctor.check",
    "evaluation.audit_command": "cli.audit",
    "evaluation.checkpoint": "evaluation.sources",
    "evaluation.command": "cli.eval",
    "evaluation.server": "evaluation.sources",
    "evaluation.statistics": "evaluation.summary",
    "importing": "settings.importing",
    "loops.agents": "agents.registry",
    "loops.budget": "agents.episode.budget",
    "loops.code_act": "agents.code_act",
    "loops.code_act_agent": "verl_adapter.loops.CodeActAgentLoop",
    "loops.episode": "agents.episode.episode",
    "loops.folding": "agents.folding",
    "loops.folding_agent": "verl_adapter.loops.FoldingAgentLoop",
    "loops.format": "agents.episode.format",
    "loops.garbage": "verl_adapter.garbage",
    "loops.hooks": "agents.episode.hooks",
    "loops.instructions": "agents.episode.format",
    "loops.llm_user": "agents.users.llm_user",
    "loops.media": "policies.media",
    "loops.plan_act": "agents.plan_act",
    "loops.plan_act_agent": "verl_adapter.loops.PlanActAgentLoop",
    "loops.policy": "agents.episode.policy",
    "loops.react": "agents.react",
    "loops.react_agent": "ReactAgentLoop",
    "loops.registry": "agents.registry",
    "loops.rendering": "policies.chat_template",
    "loops.repeats": "agents.episode.budget",
    "loops.search": "agents.search",
    "loops.search_agent": "verl_adapter.loops.SearchAgentLoop",
    "loops.setup": "agents.episode.loop",
    "loops.syntaxes": "agents.syntaxes",
    "loops.text_tool": "agents.episode.format",
    "loops.thinking": "agents.episode.format",
    "loops.token_policy": "policies.token_policy",
    "loops.tool_call": "agents.tool_call",
    "loops.tool_call_agent": "verl_adapter.loops.ToolCallAgentLoop",
    "loops.user": "agents.users.user",
    "loops.user_sim": "agents.user_sim",
    "loops.user_sim_agent": "verl_adapter.loops.UserSimAgentLoop",
    "loops.verl_loop": "verl_adapter.verl_loop",
    "loops.verl_tools": "verl_adapter.verl_tools",
    "per_loop": "concurrency",
    "plugin": "verl_adapter.plugin",
    "policies.sglang": "policies.tokens",
    "policies.vllm": "policies.tokens",
    "responses": "remote.responses",
    "result_file": "remote.disk_cache",
    "reward_command": "cli.reward",
    "reward_settings": "settings.reward",
    "rewards.consistency": "rewards.components.consistency",
    "rewards.correctness": "rewards.components.correctness",
    "rewards.embedding": "rewards.components.embedding",
    "rewards.judge.breaker": "remote.breaker",
    "rewards.judge.budget": "remote.chat_client",
    "rewards.judge.client": "remote.chat_client",
    "rewards.judge.memory": "remote.reply_cache",
    "rewards.judge.pairing": "rewards.judge.tournament",
    "rewards.judge.ranking": "rewards.judge.tournament",
    "rewards.judge.rubric": "rewards.judge.judge",
    "rewards.judge.shown": "rewards.judge.prompt",
    "rewards.judge.template": "rewards.judge.prompt",
    "rewards.kinds": "rewards.component",
    "rewards.lab.scoring": "rewards.lab.groups",
    "rewards.manager": "verl_adapter.manager",
    "rewards.normalize": "rewards.combine",
    "rewards.reward_api": "rewards.components.reward_api",
    "rewards.reward_models": "rewards.models",
    "rewards.rules": "rewards.components.rules",
    "rewards.scorers._expression": "rewards.scorers.math.expression",
    "rewards.scorers._forms": "rewards.scorers.math.forms",
    "rewards.scorers._judge": "rewards.scorers.math.worker_program",
    "rewards.scorers._latex": "rewards.scorers.math.latex",
    "rewards.scorers._same": "rewards.scorers.math.same",
    "rewards.scorers._value": "rewards.scorers.math.value",
    "rewards.scorers._worker": "rewards.scorers.math.worker",
    "rewards.scorers.math_answer": "rewards.scorers.math.math_answer",
    "rewards.scorers.numeric": "rewards.scorers.math.numeric",
    "rewards.scorers.patterns": "rewards.scorers.text_rules",
    "rewards.scorers.tags": "rewards.scorers.text_rules",
    "rewards.service.command": "cli.reward",
    "rewards.service.metrics": "rewards.service.gate",
    "rewards.service.rules": "rewards.service.endpoint",
    "rewards.service.scoring": "rewards.service.endpoint",
    "rewards.shaping": "rewards.components.shaping",
    "rewards.terms": "rewards.components.terms",
    "sandbox.execution": "sandbox.host.execution",
    "sandbox.fusion": "sandbox.host.fusion",
    "sandbox.grading": "sandbox.host.grading",
    "sandbox.sandbox": "sandbox.host.sandbox",
    "sandbox.sessions": "sandbox.host.sessions",
    "sandbox.shared": "sandbox.host.shared",
    "serving_settings": "settings.reward",
    "tools._calculator": "tools.builtin._calculator",
    "tools._http": "tools.builtin._http",
    "tools._mcp": "tools.builtin._mcp",
    "tools._sql": "tools.builtin._sql",
    "tools._sympy": "tools.builtin._sympy",
    "tools.bm25": "tools.builtin._bm25",
    "tools.calculator": "tools.builtin.calculator",
    "tools.check_answer": "tools.builtin.check_answer",
    "tools.concurrency": "concurrency",
    "tools.config": "settings.errors",
    "tools.entry": "tools.loading",
    "tools.http": "tools.builtin.http",
    "tools.importing": "settings.importing",
    "tools.mcp": "tools.builtin.mcp",
    "tools.python": "tools.builtin.python",
    "tools.redaction": "secrets",
    "tools.sandbox_fusion": "tools.builtin.sandbox_fusion",
    "tools.scope": "tools.base",
    "tools.search": "tools.builtin.search",
    "tools.sql": "tools.builtin.sql",
    "tools.submit_answer": "tools.builtin.submit_answer",
    "tools.sympy": "tools.builtin.sympy",
    "tools.toolset": "tools.spec",
}
"""Old path to new path, both within `agent_rl`."""


def spec_of(name: str) -> ModuleSpec | None:
    """The spec of a module that Python cannot find, for its import system.

    Args:
        name: its full name.

    Returns:
        An empty package for a folder that has moved, so that Python then looks for the module in it; None for an
        unknown name.

    Raises:
        ImportError: naming the new path.
    """
    old = name.removeprefix("agent_rl.")
    if old in MOVED:
        _refuse(old)
    if any(each.startswith(f"{old}.") for each in MOVED):
        return ModuleSpec(name, _GonePackage, is_package=True)  # type: ignore[arg-type]
    return None


class _GonePackage:
    """Loads a folder that has moved: an import of a name in it raises with the new path."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Gone(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing is in it."""


class _Gone(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        old = f"{self.__name__.removeprefix('agent_rl.')}.{attribute}"
        if old in MOVED:
            _refuse(old)
        raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")


def _refuse(old: str) -> NoReturn:
    raise ImportError(f"agent_rl.{old} is now agent_rl.{MOVED[old]}. Import it from there", name=f"agent_rl.{old}")
