"""A primary with a streaming standby, and the promotion of the one when the other is gone."""

import shutil
from pathlib import Path

import psycopg

from support.servers.postgres import Server


class Pair:
    """Two private servers. synchronous: a commit is answered when it is safe on both."""

    def __init__(self, binaries: Path, *, synchronous: bool) -> None:
        self.primary = Server(binaries)
        self.standby = Server(binaries)
        self._synchronous = synchronous

    def start(self) -> "Pair":
        self.primary.init().start()
        at = f"host=127.0.0.1 port={self.primary.port} user=detent"
        words = ("-D", str(self.standby.data), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", at)
        self.standby.run("pg_basebackup", *words)
        self.standby.start()
        if self._synchronous:
            self._be_synchronous()
        return self

    def _be_synchronous(self) -> None:
        """Set after the copy was made, so that the standby waits for nobody when it is promoted."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            for _ in range(500):
                if connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                    return
                connection.execute("SELECT pg_sleep(0.02)")
        raise RuntimeError("the standby did not become synchronous")

    def demote(self) -> None:
        """The primary crashes and comes back as a standby that nobody feeds: alive, and not to be written."""
        self.primary.stop("immediate")
        signal = self.primary.data / "standby.signal"
        signal.touch()
        shutil.chown(signal, self.primary.data.owner(), self.primary.data.group())
        self.primary.start()

    def promote(self) -> None:
        self.standby.run("pg_ctl", "-D", str(self.standby.data), "-w", "promote")

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()
        shutil.rmtree(self.standby.folder, ignore_errors=True)


def multi_host(ports: list[int], database: str = "postgres") -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://detent@{hosts}/{database}?target_session_attrs=primary"
