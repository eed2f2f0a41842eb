"""The page that enqueues a job: a form from the schema of its payload, the payload as JSON, options, permissions."""

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.site import Site, assert_no_errors, wait_until_drawn

pytestmark = pytest.mark.long


def part(page: Page, path: str) -> Locator:
    return page.locator(f'[data-path="{path}"]')


def problem(page: Page, path: str) -> Locator:
    """The line below the control of this part of the payload."""
    return page.locator(f'.schema-field:has(> .schema-control > [data-path="{path}"]) > .error')


def send(page: Page) -> None:
    page.get_by_role("button", name="Enqueue job").click()


def enqueued(site: Site, page: Page) -> dict[str, Any]:
    """The job that the page has enqueued, as the API shows it."""
    link = page.locator(".enqueued a")
    expect(link).to_be_visible()
    job: dict[str, Any] = site.call("GET", f"jobs/{link.inner_text()}")
    return job


def test_a_job_is_enqueued_with_the_fields_of_its_schema(site: Site) -> None:
    page = site.sign_in("ana", "jobs")
    page.get_by_role("link", name="Enqueue job").click()
    wait_until_drawn(page)
    expect(page.locator("#job-type-about")).to_have_text("Choose a job type to see the fields of its payload.")
    page.get_by_label("Job type").fill("purchase")
    page.get_by_label("Job type").press("Tab")
    expect(page.locator("#job-type-about")).to_contain_text("billing")
    names = (
        page.locator(".schema-object")
        .first.locator("> *")
        .evaluate_all("nodes => nodes.map(node => node.querySelector('label, legend').textContent)")
    )
    assert names[:4] == ["customer *", "lines *", "due *", "currency"], "as the handler has them"
    send(page)
    expect(problem(page, "customer")).to_have_text("Enter a value.")
    expect(part(page, "customer")).to_be_focused()
    part(page, "customer").fill("Ann")
    page.get_by_role("button", name="Add to lines").click()
    part(page, "lines.0.product").fill("x")
    part(page, "lines.0.pieces").fill("100")
    page.get_by_role("button", name="Add to lines").click()
    part(page, "lines.1.product").fill("to be removed")
    page.get_by_role("button", name="Remove lines 2").click()
    expect(part(page, "lines.1.product")).to_have_count(0)
    part(page, "due").fill("2030-01-31")
    expect(part(page, "currency").locator("option").first).to_have_text("Default: EUR")
    expect(page.get_by_label("Value of net").locator("option:checked")).to_have_text("Default: none")
    part(page, "currency").select_option("JPY")
    part(page, "net").fill("1.5")
    part(page, "express").select_option("true")
    address = page.get_by_label("Value of address")
    address.select_option("Value")
    part(page, "address.city").fill("Bergen")
    send(page)
    expect(problem(page, "lines.0.product")).to_have_text("At least 2 characters.")
    expect(problem(page, "lines.0.pieces")).to_have_text("Must be at most 99.")
    part(page, "lines.0.product").fill("P-1")
    part(page, "lines.0.pieces").fill("12")
    send(page)
    assert enqueued(site, page)["payload"] == {
        "customer": "Ann",
        "lines": [{"product": "P-1", "pieces": 12}],
        "due": "2030-01-31",
        "currency": "JPY",
        "net": 1.5,
        "express": True,
        "address": {"city": "Bergen"},
    }
    page.locator(".enqueued a").click()
    expect(page).to_have_url(f"{site.root_url}/jobs/{page.url.rsplit('/', 1)[1]}")
    assert_no_errors(page)


def test_the_payload_becomes_json_and_fields_again_without_loss(site: Site) -> None:
    page = site.sign_in("ana", "enqueue?name=purchase")
    payload = {
        "customer": "",
        "lines": [{"product": "P-1", "pieces": "three"}, "a text instead of an object"],
        "due": "2030-01-31",
        "net": None,
        "send_at": "2030-01-31T12:00:00+02:00",
        "reference": ["a", {"b": 1}],
        "labels": {"colour": "red"},
        "unknown": {"kept": True},
    }
    text = json.dumps(payload)[:-1] + ', "large": 12345678901234567890}'
    page.get_by_role("button", name="Whole payload as JSON").click()
    page.get_by_label("Payload (JSON)").fill(text)
    page.get_by_role("button", name="Fields").click()
    expect(part(page, "lines.0.pieces")).to_have_value('"three"')
    expect(part(page, "*")).to_have_value(
        '{\n  "unknown": {\n    "kept": true\n  },\n  "large": 12345678901234567890\n}'
    )
    page.get_by_role("button", name="Whole payload as JSON").click()
    shown = page.get_by_label("Payload (JSON)").input_value()
    assert json.loads(shown) == json.loads(text)
    page.get_by_label("Payload (JSON)").fill("{nonsense")
    page.get_by_role("button", name="Fields").click()
    expect(page.get_by_label("Payload (JSON)")).to_have_value("{nonsense")
    page.get_by_label("Payload (JSON)").fill(text)
    page.get_by_role("button", name="Fields").click()
    send(page)
    expect(problem(page, "lines.0.pieces")).to_contain_text("must be integer")
    part(page, "lines.0.pieces").fill("3")
    page.get_by_role("button", name="Remove lines 2").click()
    send(page)
    expect(problem(page, "reference")).to_contain_text("must be")
    expect(part(page, "reference")).to_be_focused()
    part(page, "reference").fill('"R-7"')
    send(page)
    expect(problem(page, "*")).to_contain_text("is not known")
    part(page, "*").fill("{}")
    send(page)
    kept = enqueued(site, page)["payload"]
    del payload["unknown"]
    assert kept == {**payload, "lines": [{"product": "P-1", "pieces": 3}], "reference": "R-7"}
    assert_no_errors(page)


def declare(page: Page, job_type: str, schema: dict[str, Any]) -> None:
    """Let the page see a job type that no worker has declared."""
    declaration = {"job_type": job_type, "options": {}, "payload_schema": schema}
    page.route(
        "**/api/v1/declarations?*",
        lambda route: route.fulfill(json={"items": [declaration], "next_cursor": None}),
    )


def test_large_numbers_other_fields_and_types_that_contain_themselves(site: Site) -> None:
    folder: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
    folder["properties"] |= {
        name: {"anyOf": [{"$ref": "#/$defs/Folder"}, {"type": "null"}], "default": None} for name in "abcdef"
    }
    page = site.sign_in("ana", "jobs")
    schema = {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
            "folder": {"$ref": "#/$defs/Folder"},
        },
        "required": ["number"],
        "additionalProperties": True,
        "$defs": {"Folder": folder},
    }
    declare(page, "account", schema)
    site.open(page, "enqueue?name=account")
    expect(part(page, "number")).to_be_visible()
    expect(page.locator("[data-path^='folder.']")).to_have_count(0)
    page.locator("fieldset select.mode").select_option("value")
    expect(page.locator("[data-path^='folder.']")).to_have_count(1)
    part(page, "number").fill(str(2**63))
    part(page, "*").fill("[1]")
    send(page)
    expect(problem(page, "number")).to_have_text("Must be at most 9223372036854775807.")
    expect(problem(page, "*")).to_have_text("Must be a JSON object.")
    part(page, "number").fill(str(2**63 - 1))
    part(page, "*").fill('{"more": 1}')
    page.get_by_label("Start").select_option("At a time")
    page.locator("[type=datetime-local]").fill("202611-11-18T10:00")
    send(page)
    expect(page.locator("#option-scheduled_at-error")).to_have_text("Enter a complete date.")
    page.get_by_label("Start").select_option("Now")
    send(page)
    assert enqueued(site, page)["payload"] == {"number": 2**63 - 1, "folder": {}, "more": 1}
    assert_no_errors(page)


def test_options_keys_and_types_without_a_schema(site: Site) -> None:
    page = site.sign_in("ana", "")
    page.keyboard.press("Control+k")
    page.locator("#palette-input").fill("enqueue a")
    page.keyboard.press("Enter")
    wait_until_drawn(page)
    page.get_by_label("Job type").fill("unheard-of")
    page.get_by_label("Job type").press("Tab")
    expect(page.locator("#job-type-about")).to_contain_text("No worker has declared")
    page.get_by_label("Payload (JSON)").fill('{"n": 1}')
    page.get_by_label("Queue").fill("later")
    page.get_by_label("Priority").fill("101")
    page.get_by_label("Idempotency key").fill("once")
    page.get_by_label("Tenant").fill("b")
    page.get_by_label("Start").select_option("After a delay")
    send(page)
    expect(page.locator("#option-priority")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Priority").fill("7")
    send(page)
    job = enqueued(site, page)
    assert (job["queue"], job["priority"], job["tenant_id"], job["payload"]) == ("later", 7, "b", {"n": 1})
    assert job["due_at"] > job["created_at"] and job["idempotency_key"] == "once"
    expect(page.locator(".enqueued")).to_contain_text("is not declared by any worker")
    page.get_by_label("Start").select_option("Now")
    send(page)
    expect(page.locator(".enqueued")).to_contain_text("exists already")
    page.get_by_label("Payload (JSON)").fill('{"n": 2}')
    send(page)
    expect(page.locator("#enqueue-error")).to_contain_text("IDEMPOTENCY_CONFLICT")
    page.get_by_label("Idempotency key").fill("")
    page.get_by_label("Contract").select_option("gate-b2")
    page.get_by_label("Retries").fill("9")
    send(page)
    expect(page.locator("#option-max_retries-error")).to_contain_text("gate-b2 fixes max_retries")
    assert_no_errors(page)


def test_who_may_enqueue(site: Site) -> None:
    viewer = site.sign_in("vic", "jobs")
    expect(viewer.get_by_role("link", name="Enqueue job")).to_have_count(0)
    response = viewer.goto(f"{site.root_url}/enqueue")
    assert response is not None and response.status == 403
    tenant = site.sign_in("tina", "enqueue?name=mail")
    expect(part(tenant, "to")).to_be_visible()
    expect(tenant.locator("#job-type-about a")).to_have_text(["standard"])  # the page of a type is not for tenants
    expect(tenant.get_by_label("Tenant")).to_have_count(0)
    part(tenant, "to").fill("ann@example.org")
    send(tenant)
    assert enqueued(site, tenant)["tenant_id"] == "a"
    assert_no_errors(viewer, tenant)
