"""An application with one job type, for a second worker process."""

from pathlib import Path

from detent import Context, Detent
from support.waiting import until

app = Detent()


@app.job("second", queue="second")
async def second(ctx: Context, gate: str) -> str:
    """Runs until the test creates the file `gate`."""
    await until(Path(gate).exists, 600)
    return "finished"
