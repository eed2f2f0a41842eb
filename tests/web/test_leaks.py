"""What is closed or hidden: the API's documentation, the errors of alert channels."""

import httpx
import pytest

from detent.core.alerts import Delivery
from detent.core.errors import InvalidInput
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.web.api import API, BASE, Api, code

pytestmark = pytest.mark.anyio


async def test_the_documentation_can_require_a_token_or_be_turned_off(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await api.person("ann", "viewer")
    expected = {"public": (200, 200), "token": (401, 200), "off": (404, 404)}
    for mode, statuses in expected.items():
        monkeypatch.setenv("DETENT_DOCS", mode)
        app = create_app(api.engine, Settings.from_environment())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
            for path in ("/docs", "/openapi.json"):
                answers = [await client.get(path, headers=headers) for headers in ({}, dict(ann.headers))]
                assert tuple(answer.status_code for answer in answers) == statuses, (mode, path)
            if mode == "token":
                session = await client.post(f"{API}/session", json={"token": ann.headers["authorization"].split()[1]})
                assert session.status_code == 200, "the cookie opens the page in a browser, not the document"
                assert [(await client.get(path)).status_code for path in ("/docs", "/openapi.json")] == [200, 401]
                client.cookies.clear()
            if mode == "off":
                assert code(answers[0], 404) == "ROUTE_NOT_FOUND"
            page = await client.get("/", headers=dict(ann.headers))
            assert ("docs" in page.text) is (mode != "off")
        await app.state.web.close()
    monkeypatch.setenv("DETENT_DOCS", "perhaps")
    with pytest.raises(InvalidInput, match="DETENT_DOCS"):
        Settings.from_environment()


async def test_the_errors_of_alert_channels_are_for_administrators(api: Api) -> None:
    """The error of a command contains what the command printed."""
    printed = "notify exited with 3: the key abc was refused"
    delivery = Delivery("d1", "no_worker", "all", "shell", '{"state": "firing"}', 1, 1)
    await api.engine.store.write(lambda tx: tx.alerts.add_delivery(delivery))
    await api.engine.store.write(lambda tx: tx.alerts.end_delivery(delivery, None, None, printed))
    for role in ("viewer", "operator", "reviewer", "admin"):
        client = await api.person(role, role)
        [row] = (await client.get(f"{API}/alerts/deliveries")).json()["items"]
        assert row["state"] == "given up" and (row["last_error"] == printed) is (role == "admin"), row
        assert role == "admin" or "abc" not in str(row)
