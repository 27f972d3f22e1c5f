"""What the attacks are after: a secret, files, a process, servers; and a way to see that none of it was touched."""

import os
import secrets
import socket
import string
import subprocess
import sys
import sysconfig
import time
from pathlib import Path


class World:
    """Things outside the sandbox; use it as a context manager.

    Args:
        folder: an empty one, readable and writable for everybody.
        token: what nobody may learn; the trainer's environment holds it as well.
    """

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.mark = f"mark-{secrets.token_hex(6)}"

    def __enter__(self) -> "World":
        self.folder.chmod(0o777)
        files = {"secret.txt": self.token, "movable.txt": self.token, "victim.txt": "untouched"}
        for name, text in files.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o666)
        self.victim = subprocess.Popen(["sleep", "600"])
        while self._state_of_victim()[0] != "S":
            time.sleep(0.001)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix_path = f"/tmp/{self.mark}.socket"  # a path of a socket is short
        self.unix.bind(self.unix_path)
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{self.mark}")
        for server in (self.unix, self.abstract):
            server.listen()
        self.before = self._files()
        return self

    def __exit__(self, *_: object) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.close()
        os.unlink(self.unix_path)

    def fill_in(self, code: str) -> str:
        """The program with the names of things in this world."""
        names = {
            "TOKEN": self.token,
            "HALF": self.token[: len(self.token) // 2],
            "OTHER": self.token[len(self.token) // 2 :],
            "SECRET": self.folder / "secret.txt",
            "MOVABLE": self.folder / "movable.txt",
            "VICTIM": self.folder / "victim.txt",
            "OUTSIDE": self.folder,
            "VICTIM_PID": self.victim.pid,
            "TRAINER": os.getpid(),
            "TCP": self.tcp.getsockname()[1],
            "UDP": self.udp.getsockname()[1],
            "UNIX": self.unix_path,
            "MARK": self.mark,
            "SITE": sysconfig.get_path("purelib"),
        }
        return string.Template(code).safe_substitute({name: str(value) for name, value in names.items()})

    def changes(self) -> list[str]:
        """What is different from the beginning: nothing, if the sandbox holds."""
        found = [] if self._files() == self.before else [f"files: {self._files()}"]
        if self.victim.poll() is not None:
            found.append("the victim is dead")
        elif (state := self._state_of_victim()) != ("S", str(os.nice(0))):
            found.append(f"the victim's state and nice value are {state}")
        for name in ("tcp", "udp", "unix", "abstract"):
            server: socket.socket = getattr(self, name)
            server.setblocking(False)
            try:
                _ = server.recv(9) if name == "udp" else server.accept()[0].close()
            except BlockingIOError:
                continue
            found.append(f"somebody reached the {name} server")
        left = [path for path in (Path("/dev/shm"), Path("/tmp")) for path in path.glob(f"{self.mark}*")]
        return found + [f"left behind: {path}" for path in left if str(path) != self.unix_path]

    def _state_of_victim(self) -> tuple[str, str]:
        """Its state (S: sleeping) and nice value."""
        status = Path(f"/proc/{self.victim.pid}/stat").read_text().split()
        return status[2], status[18]

    def _files(self) -> dict[str, tuple[int, ...]]:
        files = {}
        for path in sorted(self.folder.iterdir()):
            status = path.stat()
            files[path.name] = (status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns, status.st_nlink)
        return files


def run_unconfined(code: str, folder: Path) -> str:
    """What the program prints without a sandbox."""
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr
