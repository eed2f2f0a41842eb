"""`detent jobs`, the commands about approvals and child jobs: approvals, approve, reject, draw."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from detent.cli.operate.contracts import COLOURS
from detent.cli.option_groups import ConnectionOptions, PageOptions, TenantAuditOptions, TokenOptions
from detent.cli.options import JobId, Tenant, option
from detent.cli.output import list_view, pluralize, relative_time, shorten
from detent.core.access import Power, Role, Token, deciding_roles, same_person
from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.execution.approvals import OpenApproval
from detent.engine.reads import responses
from detent.engine.reads.tree import JobTree
from detent.engine.reads.views import job_view

from .jobs import group

AsTree = Annotated[bool, option("Draw a text tree instead.", name="--tree")]


@dataclass(frozen=True, slots=True)
class DecisionOptions:
    """Who decides, in which role, and on which version of the question."""

    by: Annotated[
        str | None, option("The person who decides; default: that of the token, --actor, else your user name.")
    ] = None
    role: Annotated[str | None, option("Your role; checked if the approval requires roles.")] = None
    digest: Annotated[
        str | None, option("Decide only if the approval still has this digest; the first 8 digits are enough.")
    ] = None


@group.command("approvals")
def approvals(
    role: Annotated[str | None, option("Only approvals that this role may decide.")] = None,
    tenant: Tenant = None,
    *,
    page_options: PageOptions,
    connection: ConnectionOptions,
) -> None:
    """List jobs that wait for approval, oldest first."""
    roles = None if role is None else [role]
    now, waiting = connection.run_with_time(
        lambda engine: engine.scoped(tenant=tenant).approvals.waiting(
            roles=roles, after=page_options.cursor, limit=page_options.limit + 1
        )
    )
    page, next_cursor = page_options.paginate(waiting, lambda approval: approval.job.id)
    view = list_view((approval.as_dict() for approval in page), next_cursor)
    columns = ("job", "summary", "approvals", "roles", "expires", "digest")
    connection.print_list(view, columns, (_row(now, approval) for approval in page), "No jobs wait for approval.")


def _row(now: Micros, approval: OpenApproval) -> list[str]:
    view = approval.as_dict()
    approved = f"{view['quorum'] - view['missing']} of {view['quorum']}"
    expires = relative_time(now, approval.job.due_at) if approval.approval else ""
    roles = ", ".join(view["roles"])
    return [approval.job.id, shorten(view["summary"], 60), approved, roles, expires, (view["digest"] or "")[:8]]


@group.command("approve")
def approve(
    job_id: JobId,
    decision: DecisionOptions,
    audit: TenantAuditOptions,
    token: TokenOptions,
    connection: ConnectionOptions,
) -> None:
    """Approve a job that waits for approval; it continues when enough people have approved.

    Where more than one must approve, each needs a token: a name that is typed counts as one person at most.
    """
    _decide(True, job_id, decision, audit, token, connection)


@group.command("reject")
def reject(
    job_id: JobId,
    decision: DecisionOptions,
    audit: TenantAuditOptions,
    token: TokenOptions,
    connection: ConnectionOptions,
) -> None:
    """Reject a job that waits for approval: it fails, or its handler receives the rejection."""
    _decide(False, job_id, decision, audit, token, connection)


def _decide(
    approved: bool,
    job_id: str,
    decision: DecisionOptions,
    audit: TenantAuditOptions,
    token_options: TokenOptions,
    connection: ConnectionOptions,
) -> None:
    typed = replace(audit, actor=decision.by or audit.actor).scope()

    async def act(full_engine: Engine) -> tuple[responses.Job, int]:
        engine, scope, token = await token_options.sign_in(full_engine, typed, Power.REVIEW)
        roles = None if decision.role is None else [decision.role]
        if token is not None:
            _check_typed(decision, token)
            roles = roles or deciding_roles(Role(token.role), token.roles)
        decide = engine.approvals.approve if approved else engine.approvals.reject
        job = await decide(job_id, scope, roles=roles, digest=decision.digest)
        waiting = await engine.approvals.of_job(job.id) if job.wait_name else []
        missing = next((approval.missing for approval in waiting if approval.name == job.wait_name), 0)
        return job_view(engine.contract(job.contract), job, payloads=engine.payloads), missing

    view, missing = connection.run(act)
    remaining = f"; {pluralize(missing, 'more approval')} needed" if missing else ""
    connection.print_result(view, f"{view['id']} {view['status']}{remaining}")


def _check_typed(decision: DecisionOptions, token: Token) -> None:
    """A name or a role on the command line must be one of the token's."""
    if decision.by is not None and same_person(decision.by) != same_person(token.person):
        raise typer.BadParameter(f"--by {decision.by}, but the token is of {token.person}; leave --by out")
    if decision.role is not None and decision.role not in deciding_roles(Role(token.role), token.roles):
        raise typer.BadParameter(f"the token of {token.person} does not have the role {decision.role}")


@group.command("draw")
def draw(job_id: JobId, as_tree: AsTree = False, tenant: Tenant = None, *, connection: ConnectionOptions) -> None:
    """Draw a job and its children with their statuses as a mermaid flowchart."""
    root = connection.run(lambda engine: engine.scoped(tenant=tenant).jobs.tree(job_id))
    picture = "\n".join(_lines(root)) if as_tree else mermaid(root)
    connection.print_result({**root.as_dict(), "mermaid": mermaid(root)}, picture)


def _lines(branch: JobTree, lead: str = "", indent: str = "") -> Iterator[str]:
    after = f", after {', '.join(branch.after)}" if branch.after else ""
    yield f"{lead}{branch.name}  {branch.job.status}  {branch.job.id}{after}"
    below: list[JobTree | tuple[str, str, int]] = [*branch.children, *branch.child_counts]
    for number, child in enumerate(below, 1):
        last = number == len(below)
        head, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(child, JobTree):
            yield from _lines(child, indent + head, indent + rest)
        else:
            yield f"{indent}{head}{child[0]}  {child[1]}  × {child[2]:,}"


def mermaid(root: JobTree) -> str:
    """An arrow leads from a parent to each child, or from the siblings that the child comes after."""
    lines = ["flowchart TD"]
    members: dict[Phase, list[str]] = {}
    _draw(root, "j1", lines, members)
    for phase, names in members.items():
        lines += [f"    classDef {phase}_phase {COLOURS[phase]}", f"    class {','.join(names)} {phase}_phase"]
    return "\n".join(lines)


def _draw(branch: JobTree, node: str, lines: list[str], members: dict[Phase, list[str]]) -> None:
    error = f"<br/>{branch.job.error_code}" if branch.job.error_code else ""
    lines.append(f'    {node}["{_label(branch.name)}<br/>{_label(branch.job.status)}{_label(error, plain=False)}"]')
    members.setdefault(branch.job.phase, []).append(node)
    names = {child.name: f"{node}_{n}" for n, child in enumerate(branch.children, 1)}
    for child in branch.children:
        _draw(child, names[child.name], lines, members)
        before = [names[name] for name in child.after if name in names] or [node]
        lines += [f"    {source} --> {names[child.name]}" for source in before]
    for n, (job_type, status, count) in enumerate(branch.child_counts, 1):
        lines.append(f'    {node}_c{n}[["{_label(job_type)}<br/>{_label(status)} × {count}"]]')
        lines.append(f"    {node} --> {node}_c{n}")


def _label(text: str, *, plain: bool = True) -> str:
    text = text.replace('"', "'").replace("\n", " ")
    return text.replace("#", "#35;").replace("<", "#lt;") if plain else text
