"""FastAPI: lifespan, dependencies, durable background tasks, and the mounted API with the application's sign-in."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.requests import Request

from detent import Context, Detent
from detent.core.access import Role, Scope
from detent.core.errors import InvalidInput
from detent.integrations.fastapi import BackgroundJobs, Person, background_jobs, current_app, lifespan, mount
from detent.testing.memory import TestWorker, on_memory
from support.fastapi.client import TestClient
from support.servers.databases import Database, house, newest
from support.web.served import SOURCES, first_json

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "fastapi.md"
SERVER = Path(__file__).parents[1] / "support" / "fastapi" / "worker_app.py"
CROSS_SITE = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
PEOPLE = {"ann": Person("ann", "operator", "acme"), "bob": Person("bob", Role.ADMIN, "*", ("lead",))}
API = "/ops/api/v1"
BODY = {"job_type": "mail", "payload": {"to": "ann"}}


@pytest.fixture
def app() -> Detent:
    app = Detent("sqlite:///:memory:")

    @app.job("mail")
    async def mail(ctx: Context, to: str) -> str:
        return f"mail to {to}"

    return app


@pytest.fixture
def worker(app: Detent) -> Iterator[TestWorker]:
    with on_memory(app) as worker:
        yield worker


def person_of(request: Request) -> Person | None:
    return PEOPLE.get(request.cookies.get("user", ""))


class AsyncSignIn:
    async def __call__(self, request: Request) -> Person:
        person = person_of(request)
        if person is None:
            raise HTTPException(401)
        return person


Connect = Callable[..., TestClient]


@pytest.fixture
def connect(app: Detent, worker: TestWorker) -> Iterator[Connect]:
    """A function that makes a client of an API with Detent mounted at /ops."""
    clients: list[TestClient] = []

    def new_client(user: str = "", **options: Any) -> TestClient:
        api = FastAPI(lifespan=lifespan(app))
        mount(api, "/ops", app, **{"authenticate": person_of, "sign_in_url": "/login?from=ops", **options})
        client = TestClient(api, cookies={"user": user}, follow_redirects=False)
        clients.append(client.__enter__())
        return client

    yield new_client
    for client in clients:
        client.__exit__(None, None, None)


def code(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    return response.json()["code"]


def listed(response: httpx.Response) -> list[Any]:
    """The only list in the answer."""
    return next(value for value in response.json().values() if isinstance(value, list))


def test_a_worker_in_the_process(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("mail", queue="mails")
    async def mail(to: str) -> str:
        return f"mail to {to}"

    api = FastAPI(lifespan=lifespan(app, worker={"queues": ["mails"]}))

    @api.post("/{to}")
    async def send(to: str, tasks: Annotated[BackgroundJobs, Depends(background_jobs())]) -> str:
        return await (await tasks.add_task(mail, to=to)).result(timeout=10)

    @api.post("/plain/{to}")
    def send_plain(to: str, tasks: Annotated[BackgroundJobs, Depends(background_jobs())]) -> str:
        return tasks.add_task_sync(mail.using(priority=5), to=to).result(timeout=10)

    for _ in range(2):
        with TestClient(api) as client:
            assert client.post("/ann").json() == "mail to ann"
            assert client.post("/plain/bob").json() == "mail to bob"
    app.sync.close()


def test_a_function_that_is_no_job_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"HANDLER_INVALID.*declare it with @app\.job"):
        BackgroundJobs().add_task_sync(len)  # type: ignore[arg-type]


def test_the_dependency(app: Detent, worker: TestWorker) -> None:
    api = FastAPI(lifespan=lifespan(app, worker=True))
    inner = FastAPI()

    @api.get("/name")
    @inner.get("/name")
    async def name(found: Annotated[Detent, Depends(current_app)]) -> bool:
        return found is app

    api.mount("/inner", inner)
    with pytest.raises(InvalidInput, match="APP_CLOSED"):
        TestClient(api).get("/name")
    with TestClient(api) as client:
        assert client.get("/name").json() and client.get("/inner/name").json()
        assert app.sync.run(app.ready()) is worker.engine
        listed = app.sync.run(worker.engine.workers.overview()).views()
    assert not listed, "no worker of its own in a test"


def test_tasks_with_a_session_are_enqueued_at_once_in_a_test(app: Detent, worker: TestWorker) -> None:
    tasks = BackgroundJobs(session=object())
    app.sync.run(tasks.add_task(app.jobs["mail"], to="ann"))
    tasks.add_task_sync(app.jobs["mail"], to="bob")
    assert worker.sync.drain() == 2
    worker.assert_enqueued(app.jobs["mail"], to="bob", times=1)


@pytest.mark.parametrize("authenticate", [person_of, AsyncSignIn()])
def test_person_role_and_tenant(connect: Connect, app: Detent, authenticate: Any) -> None:
    for tenant in ("acme", "other"):
        app.sync.run(app.jobs["mail"].using(tenant=tenant).enqueue(to="x"))
    ann, bob = connect("ann", authenticate=authenticate), connect("bob", authenticate=authenticate)
    me = ann.get(f"{API}/me").json()
    assert (me["name"], me["role"], me["tenant_id"]) == ("ann", "operator", "acme")
    assert len(listed(ann.get(f"{API}/jobs"))) == 1 and len(listed(bob.get(f"{API}/jobs"))) == 2
    assert code(ann.get(f"{API}/tokens"), 403) == "FORBIDDEN"
    assert "lead" in bob.get(f"{API}/me").json()["roles"]
    job = ann.post(f"{API}/jobs", json=BODY).json()["job"]
    (event,) = listed(ann.get(f"{API}/jobs/{job['id']}/events"))
    assert event["actor"] == "ann" and job["tenant_id"] == "acme"
    assert 'data-person="ann"' in ann.get("/ops/jobs").text


def test_nobody_is_sent_to_the_sign_in_of_the_application(connect: Connect, app: Detent, worker: TestWorker) -> None:
    nobody = connect()
    assert code(nobody.get(f"{API}/jobs"), 401) == "UNAUTHORIZED"
    first = nobody.get("/ops/jobs?status=failed")
    second = nobody.get(str(first.url.join(first.headers["location"])))
    assert second.headers["location"] == "/login?from=ops&next=%2Fops%2Fjobs%3Fstatus%3Dfailed"
    _, token = app.sync.run(worker.engine.tokens.create("robot", Role.PRODUCER, Scope("test")))
    answer = nobody.post(f"{API}/jobs", json=BODY, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 201


@pytest.mark.parametrize(
    "headers", [CROSS_SITE, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}]
)
def test_another_site_cannot_use_the_cookie(connect: Connect, headers: dict[str, str]) -> None:
    ann = connect("ann")
    assert code(ann.post(f"{API}/jobs", json=BODY, headers=headers), 403) == "ORIGIN_NOT_ALLOWED"
    for same in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://testserver"}, {}):
        assert ann.post(f"{API}/jobs", json=BODY, headers=same).status_code == 201


@pytest.mark.parametrize(
    "person", [Person("ann", "boss", "*"), Person("ann", "admin", ""), Person("", "admin", "*"), "ann"]
)
def test_an_incomplete_person_is_refused(connect: Connect, person: Any) -> None:
    client = connect(authenticate=lambda request: person)
    assert code(client.get(f"{API}/jobs"), 403) == "PERSON_INVALID"


def test_without_tokens_a_mounted_api_with_people_is_not_open(connect: Connect) -> None:
    local = connect(open_without_tokens=True)
    assert code(local.get(f"{API}/jobs", headers={"Host": "127.0.0.1"}), 401) == "UNAUTHORIZED"


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.sql("DROP TABLE IF EXISTS orders")
    database.release()


def test_the_page(database: Database) -> None:
    """Every block of docs/guides/fastapi.md is one program, which runs on Postgres."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    text = "\n".join([*blocks[:3], *blocks[4:]]).replace("postgresql://localhost/shop", database.url)
    text = text.replace(
        "postgresql+asyncpg://localhost/shop", database.url.replace("postgresql:", "postgresql+asyncpg:")
    )
    program: dict[str, Any] = {"__name__": "shop"}
    exec(compile(text, "fastapi.md", "exec", dont_inherit=True), program)  # noqa: S102

    @asynccontextmanager
    async def with_table(api: Any) -> AsyncIterator[Any]:
        async with lifespan(program["jobs"], worker=True)(api) as state:
            async with program["engine"].begin() as connection:
                await connection.run_sync(program["Base"].metadata.create_all)
            yield state
            await program["engine"].dispose()

    program["api"].router.lifespan_context = with_table
    with TestClient(program["api"], cookies={"session": "cookie-of-bob"}) as client:
        mail = client.post("/mails", params={"to": "ann", "text": "hello"}).json()
        order = client.post("/orders/1").json()
        with pytest.raises(Exception, match="duplicate key"):
            client.post("/orders/1")
        for job_id in (mail, order):
            handle = program["jobs"].sync.handle(job_id)
            assert handle.result(timeout=10).startswith("sent to ann")
        assert client.get(f"/mails/{mail}").json() == "succeeded"
        assert client.get("/detent/api/v1/me").json()["role"] == "admin"
        assert 'href="/logout"' in client.get("/detent/").text
    program["jobs"].sync.close()
    assert database.sql("SELECT count(*) FROM detent.jobs") == [(2,)]
    with on_memory(program["jobs"]) as worker:
        program["test_a_mail"](worker)


def test_the_server_stops_with_an_open_stream_and_a_running_job(tmp_path: Path) -> None:
    """SIGTERM ends the event stream of a mounted dashboard; the running job ends within the grace."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), f"sqlite:///{tmp_path}/jobs.db"],
        env=os.environ | {"PYTHONPATH": SOURCES},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        at = first_json(process)["at"]
        with (
            httpx.Client(base_url=at, timeout=20) as client,
            client.stream("GET", "/ops/api/v1/events/stream") as stream,
        ):
            assert stream.status_code == 200
            assert client.post("/work").status_code == 200
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == -signal.SIGTERM, "uvicorn repeats the signal after it has shut down"
        assert "finished" in process.stdout.read()
    finally:
        process.kill()
        process.communicate()
