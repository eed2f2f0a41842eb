"""The application that compose.yaml and the Kubernetes manifests run. Replace it by your own."""

from detent import Context, Detent

app = Detent()  # $DETENT_URL


@app.job("greet", queue="default", max_retries=3, timeout=30)
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"


@app.job("text.upper", contract="streams")
async def upper(ctx: Context, text: str) -> str:
    """Travels through Redis Streams: the orchestrator publishes it, `detent worker --transport redis` runs it."""
    return text.upper()
