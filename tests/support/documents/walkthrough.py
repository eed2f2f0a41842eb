"""Follows a page as a reader does: writes its files, types its shell commands, in the order of the page.

`pip install` and the lines about virtual environments are left out: the environment of the tests is complete. Servers
(`detent up`) run until the end of the page, on a free port instead of 8400. `JOB_ID` stands for the id of the job that
was enqueued last.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from support.waiting import until_now

from .blocks import Block, blocks, commands

LEFT_OUT = re.compile(r"(\. \.venv/bin/activate|python3 -m venv|pip install)\b")
SERVER = re.compile(r"detent (up|serve)\b")
JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Reader:
    """One reader with an empty folder and a terminal."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = str(found.getsockname()[1])
        search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.folder, self.job_id, self.output = folder, "", ""
        self.environment = {**os.environ, "PATH": search_path, "DETENT_PORT": self.port, "PYTHONPATH": str(folder)}
        self.environment["COLUMNS"] = "160"  # a terminal in which the tables fit
        self.environment.pop("DETENT_URL", None)
        self.servers: list[subprocess.Popen[bytes]] = []

    def follow(self, page: str) -> str:
        """Everything that the commands of the page printed. Raises AssertionError if one of them fails."""
        try:
            for block in blocks(page):
                self._do(block)
        finally:
            for server in self.servers:
                server.send_signal(signal.SIGTERM)
            for server in self.servers:
                server.wait(30)
        return self.output

    def _do(self, block: Block) -> None:
        if block.title:
            (self.folder / block.title).write_text(block.code, "utf-8")
        elif block.language == "shell":
            for line in commands(block):
                if not LEFT_OUT.match(line):
                    self._run(line.replace("JOB_ID", self.job_id).replace("8400", self.port), block)

    def _run(self, line: str, block: Block) -> None:
        if SERVER.match(line):
            with (self.folder / "server.log").open("ab") as log:
                server = subprocess.Popen(line.split(), cwd=self.folder, env=self.environment, stdout=log, stderr=log)
            self.servers.append(server)
            until_now(lambda: self._listens() or server.poll() is not None, 30)
            assert server.poll() is None, (self.folder / "server.log").read_text()
            return
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.output += done.stdout + done.stderr
        assert done.returncode == 0, f"{block.place}: {line}\n{done.stdout}{done.stderr}"
        if line.startswith("detent enqueue"):
            self.job_id = JOB_ID.findall(done.stdout)[0]

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", int(self.port))) == 0
