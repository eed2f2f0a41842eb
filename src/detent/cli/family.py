"""`detent jobs`: people and families. approvals, approve, reject, draw."""

from collections.abc import Iterator
from typing import Annotated

import typer

from ..core.contract import Contract, Phase
from ..core.job import Job, Micros
from ..engine import Engine
from ..engine.approvals import Open
from ..engine.tree import Branch, tree
from ..engine.views import job_view
from .connection import on_engine
from .diagram import COLOURS
from .options import Actor, AsJson, Cursor, JobId, Limit, Reason, Tenant, Url, actor_or_user, option
from .output import counted, say, say_json, shortened, show_table, tell, when

By = Annotated[str | None, option("--by", "Who decides; default: --actor, else your user name.")]
Role = Annotated[str | None, option("--role", "A role of yours; where the question asks for roles it is checked.")]
Digest = Annotated[str | None, option("--digest", "Decide only if this is still what is asked; 8 digits will do.")]
AsTree = Annotated[bool, option("--tree", "Draw a tree of text instead.")]


def register(group: typer.Typer) -> None:
    for name, command in (("approvals", approvals), ("approve", approve), ("reject", reject), ("draw", draw)):
        group.command(name)(command)


def approvals(
    role: Annotated[str | None, option("--role", "Only what somebody with this role may decide.")] = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what waits for people, oldest first."""
    roles = None if role is None else [role]

    async def act(engine: Engine) -> tuple[Micros, list[Open]]:
        found = await engine.approvals_open(tenant=tenant, roles=roles, after=cursor, limit=limit + 1)
        return engine.store.now(), found

    now, found = on_engine(url, act)
    page, more = found[:limit], len(found) > limit
    next_cursor = page[-1].job.id if more else None
    if as_json:
        say_json({"items": [line.as_dict() for line in page], "next_cursor": next_cursor})
        return
    if not page:
        say("nothing waits for approval")
        return
    show_table(("job", "asks", "missing", "roles", "until", "digest"), [_row(now, line) for line in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


def _row(now: Micros, line: Open) -> list[str]:
    told = line.as_dict()
    missing = f"{told['missing']} of {told['quorum']}"
    until = when(now, line.job.due_at) if line.approval else ""
    roles = ", ".join(told["roles"])
    return [line.job.id, shortened(told["summary"], 60), missing, roles, until, (told["digest"] or "")[:8]]


def approve(
    job_id: JobId,
    by: By = None,
    role: Role = None,
    digest: Digest = None,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say yes to a job that waits for approval; it goes on when enough people have."""
    _decide(url, as_json, job_id, True, by or actor, role, digest, reason, tenant)


def reject(
    job_id: JobId,
    by: By = None,
    role: Role = None,
    digest: Digest = None,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refuse a job that waits for approval: it ends, or its handler is told."""
    _decide(url, as_json, job_id, False, by or actor, role, digest, reason, tenant)


def _decide(
    url: str | None,
    as_json: bool,
    job_id: str,
    approved: bool,
    who: str | None,
    role: str | None,
    digest: str | None,
    reason: str | None,
    tenant: str | None,
) -> None:
    roles = None if role is None else [role]

    async def act(engine: Engine) -> tuple[Contract, Job, int]:
        decide = engine.approve if approved else engine.reject
        job = await decide(job_id, actor=actor_or_user(who), reason=reason, tenant=tenant, roles=roles, digest=digest)
        asked = await engine.approvals_of(job.id) if job.wait_name else []
        missing = next((one.missing for one in asked if one.name == job.wait_name), 0)
        return engine.contract(job.contract), job, missing

    contract, job, missing = on_engine(url, act)
    more = f"; {counted(missing, 'more person', 'more people')} must approve" if missing else ""
    tell(as_json, job_view(contract, job), f"{job.id} {job.status}{more}")


def draw(
    job_id: JobId, as_tree: AsTree = False, tenant: Tenant = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Draw a job with its children as a mermaid flowchart, each with its status."""
    root = on_engine(url, lambda engine: tree(engine, job_id, tenant))
    picture = "\n".join(_lines(root)) if as_tree else mermaid(root)
    tell(as_json, {**root.as_dict(), "mermaid": mermaid(root)}, picture)


def _lines(branch: Branch, lead: str = "", own: str = "") -> Iterator[str]:
    after = f", after {', '.join(branch.after)}" if branch.after else ""
    yield f"{lead}{branch.name}  {branch.job.status}  {branch.job.id}{after}"
    below: list[Branch | tuple[str, str, int]] = [*branch.children, *branch.crowd]
    for place, one in enumerate(below, 1):
        last = place == len(below)
        head, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(one, Branch):
            yield from _lines(one, own + head, own + rest)
        else:
            yield f"{own}{head}{one[0]}  {one[1]}  × {one[2]:,}"


def mermaid(root: Branch) -> str:
    """Parents point at their children; a child that comes after others is pointed at by those."""
    lines = ["flowchart TD"]
    members: dict[Phase, list[str]] = {}
    _draw(root, "j1", lines, members)
    for phase, names in members.items():
        lines += [f"    classDef {phase}_phase {COLOURS[phase]}", f"    class {','.join(names)} {phase}_phase"]
    return "\n".join(lines)


def _draw(branch: Branch, own: str, lines: list[str], members: dict[Phase, list[str]]) -> None:
    error = f"<br/>{branch.job.error_code}" if branch.job.error_code else ""
    lines.append(f'    {own}["{_label(branch.name)}<br/>{_label(branch.job.status)}{_label(error, plain=False)}"]')
    members.setdefault(branch.job.phase, []).append(own)
    names = {child.name: f"{own}_{n}" for n, child in enumerate(branch.children, 1)}
    for child in branch.children:
        _draw(child, names[child.name], lines, members)
        before = [names[name] for name in child.after if name in names] or [own]
        lines += [f"    {one} --> {names[child.name]}" for one in before]
    for n, (job_type, status, count) in enumerate(branch.crowd, 1):
        lines.append(f'    {own}_c{n}[["{_label(job_type)}<br/>{_label(status)} × {count}"]]')
        lines.append(f"    {own} --> {own}_c{n}")


def _label(text: str, *, plain: bool = True) -> str:
    text = text.replace('"', "'").replace("\n", " ")
    return text.replace("#", "#35;").replace("<", "#lt;") if plain else text
