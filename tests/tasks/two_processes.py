"""A worker: `python two_processes.py PORT DATA OUT KIND SETTINGS…` trains a tiny task in two processes."""

import os
import sys

from torch import nn

from tests.tasks.tiny import run_tiny, tiny


class Normed(nn.Sequential):
    """A network with the buffers of BatchNorm."""

    def __init__(self, classes):
        parts = (nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(*parts, nn.Linear(6, classes))


if __name__ == "__main__":
    child = os.fork()  # before torch has done anything: its import, which takes the longest, is shared
    os.environ |= {
        "RANK": str(int(not child)),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": sys.argv[1],
    }
    _, _, data, out, kind, *settings = sys.argv
    run_tiny(tiny(kind, data, *settings), out)
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
