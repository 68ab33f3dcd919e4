"""The one exception meant for people: what is wrong, where, and what to do, in one line."""


class UserError(Exception):
    """A mistake in what the user gave. The command line prints it without a traceback and exits with code 2."""
