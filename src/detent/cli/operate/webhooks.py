"""`detent webhooks`: subscriptions to events of jobs: list, add, edit, remove, pause, resume, replay, deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from detent.cli.option_groups import AuditOptions, CommandGroup, ConnectionOptions
from detent.cli.options import ContractFilter, Cursor, Limit, QueueFilter, TypeFilter, option
from detent.cli.output import Cell, list_view
from detent.engine.metrics.webhooks import WebhookRequest, webhook_view

group = CommandGroup(help="Send events of jobs to URLs, signed and retried.", no_args_is_help=True)
Reference = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The id or the name, see `detent webhooks list`.")]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which events a webhook gets, and whether they carry data from handlers."""

    queue: QueueFilter = None
    job_type: TypeFilter = None
    contract: ContractFilter = None
    event: Annotated[list[str] | None, option("Only events of this name; may be repeated.")] = None
    phase: Annotated[
        list[str] | None, option("Only events that lead to claimable, leased, blocked or final; may be repeated.")
    ] = None
    no_payloads: Annotated[bool, option("Leave out error texts and other data from handlers.")] = False

    def given(self) -> dict[str, Any]:
        """The fields of a webhook whose options are set."""
        lists = {"events": self.event and tuple(self.event), "phases": self.phase and tuple(self.phase)}
        fields = {"queue": self.queue, "job_type": self.job_type, "contract": self.contract, **lists}
        payloads = {"payloads": False} if self.no_payloads else {}
        return payloads | {name: value for name, value in fields.items() if value is not None}


@group.command("list")
def list_webhooks(connection: ConnectionOptions) -> None:
    """List webhooks with their state and the number of deliveries that wait."""
    views = connection.run(lambda engine: engine.webhooks.list())
    columns = ("id", "name", "url", "tenant", "state", ">backlog", ">failures", "last error")
    names = ("id", "name", "url", "tenant_id", "state", "backlog", "failures", "last_error")
    rows = (_cells(view, names) for view in views)
    connection.print_list(list_view(views), columns, rows, "No webhooks. Add one with `detent webhooks add`.")


@group.command("add")
def add(
    name: Annotated[str, option("The name, unique in its tenant.")],
    webhook_url: Annotated[str, typer.Argument(metavar="ADDRESS", help="http://… or https://…")],
    tenant: Annotated[str | None, option("Only events of this tenant.")] = None,
    *,
    filters: FilterOptions,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Subscribe a URL to events of jobs, from now on. Prints the secret that signs the requests, once."""
    request = WebhookRequest(name, webhook_url, tenant, **filters.given())
    webhook, secret = connection.run(lambda engine: engine.webhooks.add(request, audit.scope()))
    note = f"webhook {webhook.name} ({webhook.id}) added; store the secret now, it is not shown again"
    connection.print_result({**webhook_view(webhook), "secret": secret}, secret, note)


@group.command("edit")
def edit(
    webhook: Reference,
    name: Annotated[str | None, option("Another name, unique in its tenant.")] = None,
    address: Annotated[str | None, option("Another URL: http://… or https://…")] = None,
    new_secret: Annotated[
        bool, option("Make a new secret and print it, once; the old one signs too for 24 hours.")
    ] = False,
    unset: Annotated[
        list[str] | None, option("Reset this option to its default: --unset queue.", metavar="NAME")
    ] = None,
    *,
    filters: FilterOptions,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Change a webhook; options that are left out keep their value. Its secret stays, too."""
    named = {"name": name, "url": address}
    changes: dict[str, Any] = dict.fromkeys(field.replace("-", "_") for field in unset or ())
    changes |= {field: value for field, value in named.items() if value is not None} | filters.given()
    changes |= {"secret": ""} if new_secret else {}
    view, secret = connection.run(lambda engine: engine.webhooks.edit(webhook, changes, audit.scope()))
    note = f"webhook {view['name']} changed"
    kept = f"the old one signs too until {view['old_secret_until']}"
    lines = [note] if secret is None else [secret, f"{note}; store the secret now, it is not shown again; {kept}"]
    connection.print_result({**view, "secret": secret}, *lines)


@group.command("remove")
def remove(webhook: Reference, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Delete a webhook and its deliveries."""
    removed = connection.run(lambda engine: engine.webhooks.remove(webhook, audit.scope()))
    connection.print_result(webhook_view(removed), f"webhook {removed.name} removed")


@group.command("pause")
def pause(webhook: Reference, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Send nothing until it is resumed; events stay in the log."""
    paused = connection.run(lambda engine: engine.webhooks.pause(webhook, audit.scope()))
    connection.print_result(paused, f"webhook {paused['name']} paused")


@group.command("resume")
def resume(webhook: Reference, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Send again, also after Detent has disabled it."""
    resumed = connection.run(lambda engine: engine.webhooks.resume(webhook, audit.scope()))
    connection.print_result(resumed, f"webhook {resumed['name']} resumed")


@group.command("replay")
def replay(
    webhook: Reference,
    delivery: Annotated[str | None, option("Send this delivery again.")] = None,
    since: Annotated[
        str | None, option("Send all deliveries again that were created since this time (ISO-8601).")
    ] = None,
    after: Annotated[
        str | None, option("Send all events after this id of the event stream; 0: from the first.")
    ] = None,
    *,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Send deliveries again, under the same webhook-id. Give one of the three options."""
    choice = {"delivery": delivery, "since": since, "after": after}
    view = connection.run(lambda engine: engine.webhooks.replay(webhook, audit.scope(), **choice))
    number = "the events" if view["replayed"] is None else f"{view['replayed']} deliveries"
    connection.print_result(view, f"{number} will be sent again")


@group.command("deliveries")
def deliveries(webhook: Reference, limit: Limit = 20, cursor: Cursor = None, *, connection: ConnectionOptions) -> None:
    """List the deliveries of a webhook, newest first, with their retries and errors."""
    views = connection.run(lambda engine: engine.webhooks.deliveries(webhook, limit, cursor))
    columns = ("id", "event", "job", "state", ">attempts", "created", "last error")
    names = ("id", "event", "job_id", "state", "attempts", "created_at", "last_error")
    rows = (_cells(view, names) for view in views)
    connection.print_list(list_view(views), columns, rows, "No deliveries yet.")


def _cells(view: Mapping[str, Any], names: Sequence[str]) -> list[Cell]:
    return ["" if view[name] is None else view[name] for name in names]
