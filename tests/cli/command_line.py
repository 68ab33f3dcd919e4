"""The command line, called from a test."""

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
