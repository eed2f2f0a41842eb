"""Operations: statistics, workers and commands to them."""

from typing import Annotated

from detent.core.access import Power
from detent.engine.reads import operations, workers
from detent.engine.reads.responses import JsonObject, show
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

router = Router(tags=["service"])
WorkerId = Annotated[str, schemas.in_path("The worker's id.", schemas.PRINTABLE)]


@router.route_for("GET", "/stats", Power.READ, responses={200: operations.StatsResponse})
async def get_stats(request: ApiRequest) -> JsonObject:
    """Number of jobs by status and phase; for tokens without a tenant also backlog, dead letters, workers and pauses.

    If counting is slow, the last count is returned for a while; `at` is the time of the count.
    """
    request.caller.require_all_queues("statistics")
    tenant = request.caller.tenant
    return await request.web.shared_counts.get("" if tenant is None else f"tenant {tenant}", request.engine.stats.view)


@router.route_for("GET", "/workers", Power.READ, shared="workers")
async def list_workers(request: ApiRequest) -> list[operations.Worker]:
    """List the workers and the jobs each one holds. A worker without a heartbeat for three leases is not live."""
    return (await request.engine.workers.overview()).views()


@router.route_for("GET", "/workers/recoveries", Power.READ, shared="workers")
async def list_recoveries(request: ApiRequest) -> list[operations.WorkerRecovery]:
    """List the jobs that were reclaimed from lost workers within the last week, by worker."""
    return [recovery.view() for recovery in await request.engine.workers.recoveries()]


@router.route_for("GET", "/workers/{worker_id}", Power.READ, shared="a worker")
async def get_worker(request: ApiRequest, worker_id: WorkerId) -> operations.WorkerDetail:
    """A worker: what it runs now with its progress, its load, and what it has done lately. 404 WORKER_NOT_FOUND."""
    return await request.engine.workers.detail(worker_id)


@router.route_for("POST", "/workers/{worker_id:path}/drain", Power.OPERATE, shared="workers")
async def drain_worker(
    request: ApiRequest, worker_id: WorkerId, body: schemas.OptionalReason = None
) -> operations.WorkerCommand:
    """Drain a worker: it finishes the jobs it holds, claims no more, and exits. 404 WORKER_NOT_FOUND if not live."""
    command = await request.engine.workers.send_command(worker_id, workers.DRAIN, request.acting(body))
    return show(operations.WorkerCommand, command)


@router.route_for("POST", "/workers/{worker_id:path}/stop", Power.OPERATE, shared="workers")
async def stop_worker(
    request: ApiRequest, worker_id: WorkerId, body: schemas.OptionalReason = None
) -> operations.WorkerCommand:
    """Stop a worker as SIGTERM would. 404 WORKER_NOT_FOUND if it is not live."""
    command = await request.engine.workers.send_command(worker_id, workers.STOP, request.acting(body))
    return show(operations.WorkerCommand, command)
