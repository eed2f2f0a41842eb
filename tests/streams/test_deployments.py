"""Redis as it is deployed: watched by sentinels, behind TLS, with users of limited rights."""

import asyncio
import gc
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent import Detent
from detent.client.stream_app import orchestrator as make_orchestrator
from detent.core.errors import InvalidInput
from detent.engine import Engine, Submission
from detent.ports.stream import StreamSettings, StreamUnavailable, TaskMessage
from detent.proof.verify.verify import verify
from detent.streams.orchestrator import Orchestrator
from detent.transports.redis_streams import address
from detent.transports.redis_streams.transport import RedisStreamTransport
from support.servers.programs import program
from support.servers.proxy import Proxy
from support.servers.sentinel import sentinel_group
from support.servers.valkey import running
from support.waiting import until

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "redis-streams.md"
TASK = TaskMessage("task", "add", "{}", 0, "key", "trace")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Detent]:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job("add", contract="streams")
    async def add(a: int) -> int:
        return a

    async with app:
        yield app


@asynccontextmanager
async def working(app: Detent, settings: StreamSettings) -> AsyncIterator[Orchestrator]:
    """An orchestrator and a worker in this process."""
    orchestrator = await make_orchestrator(app, settings)
    worker = await app.worker(transport="redis", settings=settings)
    tasks = [asyncio.create_task(orchestrator.run()), asyncio.create_task(worker.run(handle_signals=False))]
    try:
        yield orchestrator
    finally:
        worker.stop()
        await tasks[1]
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await orchestrator.transport.close()


async def submit(engine: Engine, number: int) -> list[str]:
    submitted = await engine.jobs.submit_many([Submission("add", {"a": n}, "streams") for n in range(number)])
    return [entry.job.id for entry in submitted]


async def all_succeeded(engine: Engine, ids: list[str]) -> bool:
    return {(await engine.jobs.get(job_id)).status for job_id in ids} == {"succeeded"}


@pytest.mark.long
async def test_sentinels_name_another_primary_and_no_task_is_lost(app: Detent) -> None:
    """The primary is killed under load: orchestrator and worker follow to the promoted replica by themselves."""
    with sentinel_group(down_after=100) as group:
        engine = await app.ready()
        first = group.primary()
        async with working(app, StreamSettings(group.url, visibility_timeout_s=0.3)):
            before = await submit(engine, 50)
            await until(lambda: all_succeeded(engine, before[:10]))
            first.kill()
            during = await submit(engine, 50)
            await until(lambda: group.primary() is not first)
            after = await submit(engine, 50)
            await until(lambda: all_succeeded(engine, before + during + after))
        for job_id in before + during + after:
            events = [event.event for event in (await engine.jobs.history(job_id)).events]
            assert events.count("task.succeeded") == 1
        assert (await verify(engine.store)).ok


async def test_a_sentinel_that_is_down_is_passed_over() -> None:
    with sentinel_group() as group, running() as unused:
        port = unused.port
        unused.kill()
        url = group.url.replace("sentinel://", f"sentinel://127.0.0.1:{port},")
        transport = RedisStreamTransport(StreamSettings(url))
        assert await transport.publish([TASK]) == group.primary().client().info("server")["run_id"]
        await transport.close()


async def test_a_service_that_no_sentinel_knows_is_a_clear_error() -> None:
    with sentinel_group() as group:
        transport = RedisStreamTransport(StreamSettings(group.url.replace("/jobs/", "/other/")))
        with pytest.raises(StreamUnavailable, match="No master found for 'other'"):
            await transport.length()
        await transport.close()


@pytest.mark.parametrize("seen", ["before the outbox is read", "before the task is published"])
async def test_a_task_published_to_a_former_primary_is_published_again(app: Detent, seen: str) -> None:
    """One orchestrator is still connected to the former primary when another one has seen the new one."""
    with running() as former, running() as current:
        engine = await app.ready()
        left, right = [await make_orchestrator(app, StreamSettings(server.url())) for server in (former, current)]
        await left.check_epoch()
        current.client().set("detent:epoch", former.client().get("detent:epoch"))
        publish = left.transport.publish

        async def publish_late(tasks: Sequence[TaskMessage]) -> str:
            await right.check_epoch()
            return await publish(tasks)

        if seen == "before the outbox is read":
            await right.check_epoch()
        else:
            left.transport.publish = publish_late  # type: ignore[method-assign]
        (job_id,) = await submit(engine, 1)
        await left.publish_outbox()
        assert former.client().xlen("stream:task") == 1
        await right.check_epoch()
        await right.publish_outbox()
        assert [fields["task_id"] for _, fields in current.client().xrange("stream:task")] == [job_id]
        for orchestrator in (left, right):
            await orchestrator.transport.close()


async def test_a_blocked_read_ends_when_the_primary_becomes_a_replica() -> None:
    with running() as first, running() as second:
        transport = RedisStreamTransport(StreamSettings(first.url()))
        await transport.ensure_groups()
        reading = asyncio.create_task(transport.read("me", 1, 30.0))
        await until(lambda: first.client().info("clients")["blocked_clients"] == 1)
        first.client().replicaof("127.0.0.1", second.port)
        with pytest.raises(StreamUnavailable, match="UNBLOCKED"):
            await asyncio.wait_for(reading, 10)
        await transport.close()


async def test_connecting_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step: while sentinels or the server are asked and nobody answers. No socket stays open."""
    monkeypatch.setattr(address, "_SENTINEL_TIMEOUT", 0.1)
    with running() as server, Proxy(server.port) as silent:
        silent.go_silent()
        for url in (f"redis://127.0.0.1:{silent.port}", f"redis+sentinel://127.0.0.1:{silent.port}/jobs"):
            transport = RedisStreamTransport(StreamSettings(url))
            for steps in range(12):
                call = asyncio.create_task(transport.length())
                for _ in range(steps):
                    await asyncio.sleep(0)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(call, 10)
            await transport.close()
    gc.collect()  # a socket that was left open is an error of this test


def make_certificate(folder: Path) -> ssl.SSLContext:
    """A self-signed certificate for 127.0.0.1 in `folder`/cert.pem, and the context of a server that shows it."""
    openssl = program("openssl", "the tests of rediss:// make a certificate with it")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    names = ("-subj", "/CN=detent", "-addext", "subjectAltName=IP:127.0.0.1")
    command = (openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files, *names)
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_tls_checks_the_certificate(tmp_path: Path) -> None:
    with running() as server, Proxy(server.port, make_certificate(tmp_path)) as tls:
        url = f"rediss://127.0.0.1:{tls.port}/0"
        stranger = RedisStreamTransport(StreamSettings(url))
        with pytest.raises(StreamUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.length()
        await stranger.close()
        for options in (f"ssl_ca_certs={tmp_path / 'cert.pem'}", "ssl_cert_reqs=none"):
            transport = RedisStreamTransport(StreamSettings(f"{url}?{options}"))
            await transport.publish([TASK])
            await transport.close()
        assert server.client().xlen("stream:task") == 2


async def test_a_user_with_the_rights_on_the_page_is_enough(app: Detent) -> None:
    """The ACL rule of the docs page, as it is written there."""
    (rule,) = re.findall(r"^ACL SETUSER detent (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    with running() as server:
        server.client().execute_command("ACL", "SETUSER", "detent", *rule.split())
        server.client().execute_command("ACL", "SETUSER", "default", "off")
        engine = await app.ready()
        url = server.url().replace("redis://", "redis://detent:secret@")
        async with working(app, StreamSettings(url, visibility_timeout_s=1.0)) as orchestrator:
            ids = await submit(engine, 20)
            await until(lambda: all_succeeded(engine, ids))
            await orchestrator.transport.trim()
            await orchestrator.transport.remove_idle_consumers(0.0)
            assert len(await orchestrator.transport.health()) == 2
            assert orchestrator.errors == 0


async def test_what_a_user_may_not_do_is_a_clear_error() -> None:
    with running() as server:
        server.client().execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+info", "+xlen")
        allowed = RedisStreamTransport(StreamSettings(server.url().replace("//", "//reader:secret@")))
        assert await allowed.length() == 0
        with pytest.raises(StreamUnavailable, match="'xadd'"):
            await allowed.publish([TASK])
        await allowed.close()
        wrong = RedisStreamTransport(StreamSettings(server.url().replace("//", "//reader:wrong@")))
        with pytest.raises(StreamUnavailable, match="invalid username-password"):
            await wrong.length()
        await wrong.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://127.0.0.1:26379",
        "redis+sentinel:///jobs",
        "redis+sentinel://127.0.0.1:26379/jobs/first",
        "http+sentinel://127.0.0.1:26379/jobs",
        "redis://127.0.0.1:6379/0?colour=red",
        "redis://127.0.0.1:port/0",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RedisStreamTransport(StreamSettings(url))
    assert refused.value.code == "REDIS_URL_INVALID"
    assert "redis+sentinel://host:26379,host2:26379/service/0" in refused.value.message
