"""detent.toml of the working directory: only from this user, because it may name commands to run."""

import os
from pathlib import Path

import pytest

from detent.core.errors import InvalidInput
from detent.observability.settings import load_settings

TEXT = '[alerts.sinks.shell]\ntype = "command"\ncommand = "notify"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DETENT_CONFIG", raising=False)
    path = tmp_path / "detent.toml"
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def test_a_file_of_this_user_is_loaded(file: Path) -> None:
    assert "shell" in load_settings().sinks


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_refused(file: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(mode)
    with pytest.raises(InvalidInput, match="go-w") as caught:
        load_settings()
    assert caught.value.code == "SETTINGS_UNSAFE"
    assert "shell" in load_settings(str(file)).sinks, "a file that is named is loaded"
    monkeypatch.setenv("DETENT_CONFIG", str(file))
    assert "shell" in load_settings().sinks


def test_a_file_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:  # a file of root is loaded by everybody
        assert "shell" in load_settings().sinks
        os.chown(file, 65_534, 65_534)
    with pytest.raises(InvalidInput, match="another user"):
        load_settings()
