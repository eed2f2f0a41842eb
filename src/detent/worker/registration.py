"""Registration of a worker: its unique name, and its row in the workers table."""

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


def registration_row(worker: "Worker", queues: frozenset[str] | None, started_at: Micros) -> WorkerRow:
    state = worker.state
    return WorkerRow(
        id=worker.id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        queues=None if queues is None else json.dumps(sorted(queues)),
        job_types=json.dumps(sorted(worker.handlers)),
        slots=state.slots,
        busy=len(state.held) + state.abandoned,
        state="draining" if worker.draining else "stopping" if state.stopping else "working",
        started_at=started_at,
        seen_at=started_at,
        lease=int(worker.lease_seconds * 1_000_000),
    )
