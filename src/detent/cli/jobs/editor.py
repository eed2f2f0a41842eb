"""Lets the user edit a text in $VISUAL or $EDITOR."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import typer


def edit_text(text: str) -> str:
    """Open the text in $VISUAL or $EDITOR and return what was saved."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "payload.json"
        path.write_text(text, "utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise typer.BadParameter(f"the editor {editor!r} failed ({error}); set $EDITOR") from None
        return path.read_text("utf-8")
