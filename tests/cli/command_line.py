"""The command line, called from a test."""

import re

from horosphere.cli import main


def runner(capsys, *first):
    """run(*words): exit code, standard output and standard error of a command that begins with `first`."""

    def run(*words):
        try:
            code = main([*first, *map(str, words)])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def cells(out):
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines())
