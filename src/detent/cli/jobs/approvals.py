"""`detent jobs`: people and families. approvals, approve, reject, draw."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from detent.cli.operate.diagram import COLOURS
from detent.cli.option_groups import Asked, Page, Place, spread
from detent.cli.options import JobId, Tenant, option
from detent.cli.output import counted, say, say_json, shortened, show_table, when
from detent.core.contract.model import Contract, Phase
from detent.core.job import Job, Micros
from detent.engine import Engine
from detent.engine.execution.approvals import Open
from detent.engine.reads.tree import Branch, tree
from detent.engine.reads.views import job_view

AsTree = Annotated[bool, option("--tree", "Draw a tree of text instead.")]


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decides, and on what."""

    by: Annotated[str | None, option("--by", "Who decides; default: --actor, else your user name.")] = None
    role: Annotated[
        str | None, option("--role", "A role of yours; where the question asks for roles it is checked.")
    ] = None
    digest: Annotated[
        str | None, option("--digest", "Decide only if this is still what is asked; 8 digits will do.")
    ] = None


def register(group: typer.Typer) -> None:
    for name, command in (("approvals", approvals), ("approve", approve), ("reject", reject), ("draw", draw)):
        group.command(name)(spread(command))


def approvals(
    role: Annotated[str | None, option("--role", "Only what somebody with this role may decide.")] = None,
    tenant: Tenant = None,
    *,
    part: Page,
    place: Place,
) -> None:
    """List what waits for people, oldest first."""
    roles = None if role is None else [role]

    async def act(engine: Engine) -> tuple[Micros, list[Open]]:
        found = await engine.approvals_open(tenant=tenant, roles=roles, after=part.cursor, limit=part.limit + 1)
        return engine.store.now(), found

    now, found = place.run(act)
    page, next_cursor = part.of(found, lambda line: line.job.id)
    if place.as_json:
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


def approve(job_id: JobId, decision: Decision, asked: Asked, place: Place) -> None:
    """Say yes to a job that waits for approval; it goes on when enough people have."""
    _decide(True, job_id, decision, asked, place)


def reject(job_id: JobId, decision: Decision, asked: Asked, place: Place) -> None:
    """Refuse a job that waits for approval: it ends, or its handler is told."""
    _decide(False, job_id, decision, asked, place)


def _decide(approved: bool, job_id: str, decision: Decision, asked: Asked, place: Place) -> None:
    roles = None if decision.role is None else [decision.role]
    told = replace(asked, actor=decision.by or asked.actor).told()

    async def act(engine: Engine) -> tuple[Contract, Job, int]:
        decide = engine.approve if approved else engine.reject
        job = await decide(job_id, **told, roles=roles, digest=decision.digest)
        waiting = await engine.approvals_of(job.id) if job.wait_name else []
        missing = next((one.missing for one in waiting if one.name == job.wait_name), 0)
        return engine.contract(job.contract), job, missing

    contract, job, missing = place.run(act)
    more = f"; {counted(missing, 'more person', 'more people')} must approve" if missing else ""
    place.tell(job_view(contract, job), f"{job.id} {job.status}{more}")


def draw(job_id: JobId, as_tree: AsTree = False, tenant: Tenant = None, *, place: Place) -> None:
    """Draw a job with its children as a mermaid flowchart, each with its status."""
    root = place.run(lambda engine: tree(engine, job_id, tenant))
    picture = "\n".join(_lines(root)) if as_tree else mermaid(root)
    place.tell({**root.as_dict(), "mermaid": mermaid(root)}, picture)


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
