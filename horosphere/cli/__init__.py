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
from horosphere.errors import UserError

# the file of each verb, in the order of the help
VERBS = (
    *("train", "embed", "adapt", "compare", "measure", "evaluate"),
    *("generate", "explain", "superposition", "listing", "demo"),
)
STARTED = time.time()
BROKEN_PIPE = 141  # as a shell has it for a program that SIGPIPE ended
# seconds that other processes leave the main one to say what is wrong: torchrun ends all as soon as one has ended
PATIENCE = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no δ still gets its table
    args = argparse.Namespace(debug=False)
    try:
        parser = _parser()
        _, args.more = parser.parse_known_args(argv, args)
        if args.more and "settings" not in args:
            parser.error(f"unrecognized arguments: {' '.join(args.more)}")
        if getattr(args, "overwrite", False) and (getattr(args, "resume", False) or getattr(args, "go_on", False)):
            raise UserError("--overwrite begins anew, --resume and --continue go on: leave one of them out")
        if "run" in args:
            args.run(args)
        else:
            parser.print_help()
        if sys.stdout is not None:  # `>&-` closes it
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough: head, less
        # or Python complains about it once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (UserError, OSError) as error:
        if args.debug:
            raise
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain(f"stopped; {_kept(args)}")
        return 130
    return 0


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
