"""Classifiers so small that a run takes a second, and a worker: `python tiny_images.py PORT DATA OUT` is two processes."""

import os
import sys

from torch import nn

from horosphere.train.images import ImageRecipe, train_images

SMALL = (
    *(
        "size=8",
        "batch=8",
        "steps=4",
        "lr=1e-2",
        "log_every=1",
        "eval_every=2",
        "save_every=2",
        "ema=0.9",
        "randaugment=0",
    ),
    *(
        "blocks=1,1,1,1",
        "dims=8,8,8,8",
        "heads=1,1,1,1",
        "head_width=8",
        "mlp_ratios=1,1,1,1",
        "windows=2,2,1,1",
        "patch_centres=4,1,1,1",
    ),
    *("window_centres=1,1,1,0", "layer_scale=0.5", "drop_path=0.2"),
)


def small(data, *more):
    return ImageRecipe.read("hcformer-nano-32", [f"data={data}", *SMALL, *more])


class Normed(nn.Sequential):
    """A network with the buffers of BatchNorm."""

    def __init__(self, classes):
        super().__init__(
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, classes),
        )


if __name__ == "__main__":
    child = os.fork()  # before torch has done anything: its import, which takes the longest, is shared
    os.environ |= {
        "RANK": str(int(not child)),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": sys.argv[1],
    }
    train_images(small(sys.argv[2], "drop_path=0"), sys.argv[3], quiet=True, device="cpu")
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
