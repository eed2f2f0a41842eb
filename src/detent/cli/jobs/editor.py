"""A text in the editor of the person at the terminal."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import typer


def in_editor(text: str) -> str:
    """The text as it was left in $VISUAL or $EDITOR."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "payload.json"
        path.write_text(text, "utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise typer.BadParameter(f"the editor {editor!r} did not end well ({error}); set $EDITOR") from None
        return path.read_text("utf-8")
