"""The command line: reads the arguments, calls the library, prints for people. One file a verb."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from horosphere import __version__
from horosphere.cli.common import Parser, is_main
from horosphere.errors import LONGEST, UserError, one_line
from horosphere.memory import within_memory

# the file of each verb, in the order of the help
VERBS = (
    *("train", "embed", "adapt", "compare", "measure", "evaluate"),
    *("predict", "neighbors", "explore", "export", "generate", "serve", "explain", "image"),
    *("superposition", "listing", "demo"),
)
STARTED = time.time()
BROKEN_PIPE = 141  # as a shell has it for a program that SIGPIPE ended
# seconds that other processes leave the main one to say what is wrong: torchrun ends all as soon as one has ended
PATIENCE = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    _open_streams()
    args = argparse.Namespace(debug=False)
    try:
        parser = _parser()
        _, args.more = parser.parse_known_args(argv, args)
        if args.more and "settings" not in args:
            hint = f"; {args.hint}" if "hint" in args else ""
            parser.error(f"unrecognized arguments: {' '.join(args.more)}{hint}")
        if getattr(args, "overwrite", False) and (getattr(args, "resume", False) or getattr(args, "go_on", False)):
            raise UserError("--overwrite begins anew, --resume and --continue go on: leave one of them out")
        if "run" in args:
            with within_memory():
                args.run(args)
        else:
            parser.print_help()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough: head, less
        _close_output()
        return BROKEN_PIPE
    except (UserError, OSError) as error:
        if args.debug:
            raise
        nameless = isinstance(error, OSError) and error.filename is None  # files that we write say their names
        _complain(
            f"standard output: {one_line(error)}; what was made is kept" if nameless else one_line(error, LONGEST)
        )
        if nameless:
            _close_output()
        return error.exit_code if isinstance(error, UserError) else 2
    except (KeyboardInterrupt, RuntimeError) as error:
        # before Python 3.12, Ctrl-C while a class is being made comes as the cause of a RuntimeError
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _complain(f"stopped; {_kept(args)}")
        return 130
    return 0


def _open_streams() -> None:
    """`>&-` closes a stream. The next file that is opened would get its number, and the words of others with it."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 (it lives as long as the process)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no δ still gets its table


def _close_output() -> None:
    """Or Python complains once more at its end about what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="horosphere",
        description="Deep learning in any geometry, and instruments that say whether curvature pays.",
        epilog="start with `horosphere demo`, then `horosphere compare tree.tsv`",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"horosphere {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for verb in VERBS:
        import_module(f"horosphere.cli.{verb}").add(commands)
    return parser


def _complain(text: str) -> None:
    """Once, however many processes torchrun has started."""
    if is_main():
        print(f"horosphere: {text}", file=sys.stderr)
    else:
        time.sleep(PATIENCE)


def _kept(args: argparse.Namespace) -> str:
    """What is on the disk after Ctrl-C. A command's `kept`: the file that shows that something is, and what to say."""
    mark, text = getattr(args, "kept", ("", ""))
    file = Path(getattr(args, "out", None) or "nothing was chosen yet") / mark
    if not text or not file.exists() or (args.overwrite and file.stat().st_mtime < STARTED):
        return "nothing was written"
    return text.format(out=args.out) + ", without --overwrite" * args.overwrite
