"""Runs `detent` commands with the packages of the core only, as after `pip install detent`.

    python core_only.py BLOCKED COMMANDS

BLOCKED: modules that cannot be imported. COMMANDS: lists of arguments; `import` as the first one imports a module. Both
are JSON. Prints the exit code, the output and the errors of each command as JSON.
"""

import importlib
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout


def main() -> None:
    blocked, commands = map(json.loads, sys.argv[1:])
    sys.modules.update(dict.fromkeys(blocked))
    answers = [run_command(arguments) for arguments in commands]
    print(json.dumps(answers))


def run_command(arguments: list[str]) -> tuple[int, str, str]:
    from detent.cli import run

    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        if arguments[0] != "import":
            code = run(arguments)
        else:
            try:
                importlib.import_module(arguments[1])
                code = 0
            except ImportError as error:
                print(error, file=sys.stderr)
                code = 1
    return code, output.getvalue(), errors.getvalue()


if __name__ == "__main__":
    main()
