"""How a process introduces itself to the others: its name, and the row they see it by."""

import json
import os
import socket
from typing import TYPE_CHECKING

from detent.core.job import Micros
from detent.ports.ids import Ids
from detent.ports.listing import WorkerRow
from detent.version import __version__

if TYPE_CHECKING:
    from .worker import Worker


def worker_name(ids: Ids) -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{ids.token()[:6]}"


def introduction(worker: "Worker", queues: frozenset[str] | None, started_at: Micros) -> WorkerRow:
    machine = worker.machine
    return WorkerRow(
        id=worker.id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        queues=None if queues is None else json.dumps(sorted(queues)),
        job_types=json.dumps(sorted(worker.handlers)),
        slots=machine.slots,
        busy=len(machine.held) + machine.ghosts,
        state="draining" if worker.draining else "stopping" if machine.stopping else "working",
        started_at=started_at,
        seen_at=started_at,
        lease=int(worker.lease_seconds * 1_000_000),
    )
