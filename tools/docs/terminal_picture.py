"""`make pictures`: a terminal session, run for real and drawn as docs/pictures/terminal.svg."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from .sources import DOCS

TARGET = DOCS / "pictures" / "terminal.svg"
JOBS = """from detent import Context, Detent

app = Detent()


def charge_card(order_id: int, amount: int) -> str:
    return f"receipt-{order_id}"


@app.job("order", max_retries=5, backoff=[1, 5, 30])
async def order(ctx: Context, order_id: int, amount: int) -> dict:
    receipt = await ctx.step("charge", charge_card, order_id, amount)
    packed = await ctx.wait_for("packed", timeout="2d")
    return {"receipt": receipt, "packed_by": packed["by"]}
"""
SESSION = (
    'detent enqueue order --payload \'{"order_id": 7, "amount": 120}\'',
    "detent worker shop.py --until-idle",
    "detent jobs why JOB_ID",
    'detent jobs signal JOB_ID packed --data \'{"by": "Bo"}\'',
    "detent worker shop.py --until-idle",
    "detent jobs events JOB_ID",
    "detent verify",
)
WIDTH = 120
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich names fonts of another host; the picture uses those of the reader."""


def main() -> int:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(JOBS)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "USER": "ann"}
        environment.pop("DETENT_URL", None)
        subprocess.run(["detent", "worker", "shop.py", "--until-idle"], cwd=folder, env=environment, check=True)
        job_id = ""
        for line in SESSION:
            command = line.replace("JOB_ID", job_id)
            console.print(Text("$ ", "bold green") + Text(command, "bold"))
            done = subprocess.run(
                ["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=True
            )
            shown = (done.stdout + done.stderr).rstrip()
            job_id = job_id or shown.split()[0]
            console.print(Text("\n".join(row.rstrip()[:WIDTH] for row in shown.splitlines())))
    drawing = console.export_svg(title="Detent", theme=MONOKAI, unique_id="detent")
    drawing = FONTS.sub("", drawing).replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    TARGET.write_text("\n".join(row.rstrip() for row in drawing.splitlines()) + "\n", "utf-8")
    print(f"wrote {TARGET.name}, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
