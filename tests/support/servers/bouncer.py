"""A real PgBouncer in transaction mode, in front of one server, where the machine has one."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from support.servers.postgres import Server, free_port

ABSENT = "what is promised behind PgBouncer needs a real one: install it (apt install pgbouncer)"
_CONFIG = """\
[databases]
* = host=127.0.0.1 port={server} user=detent

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = {size}
logfile = {folder}/pgbouncer.log
"""


def installed() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def bouncing(server: Server, database: str, size: int = 4) -> Iterator[str]:
    """The URL of the database by way of the bouncer, which has this many connections to it. As root: run as nobody."""
    program = installed()
    assert program, ABSENT
    identity = server._identity()
    folder = Path(tempfile.mkdtemp(prefix="detent-bouncer-"))
    config, port = folder / "pgbouncer.ini", free_port()
    text = _CONFIG.format(server=server.port, port=port, folder=folder, size=size)
    if _knows_prepared_statements(program):
        text += "max_prepared_statements = 0\n"  # as the older ones: the hard case
    config.write_text(text)
    for path in (folder, config):
        path.chmod(0o755)
        if identity:
            shutil.chown(path, identity["user"], identity["group"])
    process = subprocess.Popen([program, config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **identity)
    try:
        _wait(process, port, database, folder)
        yield f"postgresql://detent@127.0.0.1:{port}/{database}?pgbouncer=1"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _knows_prepared_statements(program: str) -> bool:
    version_text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in version_text.split()[1].split(".")[:2]) >= (1, 21)


def _wait(process: subprocess.Popen[bytes], port: int, database: str, folder: Path) -> None:
    """Until it lets somebody through to the server."""
    for _ in range(100):
        try:
            psycopg.connect(f"postgresql://detent@127.0.0.1:{port}/{database}", connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
    log = folder / "pgbouncer.log"
    raise RuntimeError("PgBouncer did not start: " + (log.read_text()[-2000:] if log.exists() else "no log"))
