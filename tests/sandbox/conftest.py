"""One open sandbox for the tests of this folder: nothing passes from one program to the next, which is tested, too."""

import asyncio

import pytest

from agent_rl.sandbox import PythonSandbox


class OpenSandbox:
    """A sandbox and the event loop that it belongs to."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.sandbox = PythonSandbox(packages=("numpy", "sympy", "pytest"), max_concurrency=8)
        self.do(self.sandbox.__aenter__())

    def do(self, work):
        """The result of a coroutine."""
        return self.loop.run_until_complete(work)

    def cells(self, *codes, limits=None, **options):
        """The executions of `codes` in one session."""

        async def main():
            async with self.sandbox.session(**(limits or {})) as session:
                return [await session.run(code, **options) for code in codes]

        return self.do(main())

    def close(self):
        self.do(self.sandbox.__aexit__())
        self.do(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture(scope="package")
def box():
    box = OpenSandbox()
    yield box
    box.close()
