"""Run the conformance checks on a gateway."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction
from typing import Any

from agent_rl.conformance import Driver, OpenSession, Unsupported
from agent_rl.conformance.checks import Protocol, Training
from agent_rl.conformance.client import Checks, Fault
from agent_rl.conformance.engine import Engine
from agent_rl.work.concurrency import OutOfTime, within

CHECKS: dict[str, tuple[type[Checks], str, list[Any]]] = {}
"""The class, function name and arguments of each check, by the check's name."""
for group in (Protocol, Training):
    for name in (name for name, value in vars(group).items() if iscoroutinefunction(value)):
        cases = getattr(getattr(group, name), "cases", None)
        for case in cases or [None]:
            CHECKS[f"{name}: {case}" if case else name] = group, name, [cases[case]] if cases else []
TIMEOUT_S = 60.0  # of a check


async def run_checks(gateway: Driver | OpenSession, names: Iterable[str] = CHECKS) -> list[dict[str, str]]:
    """Run checks, and return the output of `agent-rl gateway check --json`; a gateway that hangs is restarted."""
    results, left = list[dict[str, str]](), list(names)
    while left:
        engine = Engine()
        async with AsyncExitStack() as stack:
            if isinstance(gateway, Driver):
                await engine.start()
                stack.push_async_callback(engine.stop)
                await gateway.start(engine)
                stack.push_async_callback(gateway.stop)
            stack.callback(engine.free.set)
            while left:
                results.append(await _result(left.pop(0), gateway, engine))
                if results[-1]["status"] == "does not end":
                    break
    return results


async def _result(name: str, gateway: Driver | OpenSession, engine: Engine) -> dict[str, str]:
    group, function, arguments = CHECKS[name]
    checks, status, problem = group(gateway, engine), "passes", ""
    check = getattr(checks, function)
    try:
        async with checks.connections:
            await within(TIMEOUT_S, check(*arguments))
    except (Fault, Unsupported) as error:
        status, problem = "missing" if isinstance(error, Unsupported) else "fails", str(error)
    except OutOfTime:
        status, problem = "does not end", f"the check did not end within {TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001 - any error in an answer or a driver is attributed to the gateway
        status, problem = "fails", f"{type(error).__name__}: {error}"
    return {"check": name, "holds": check.__doc__, "status": status, "problem": problem}
