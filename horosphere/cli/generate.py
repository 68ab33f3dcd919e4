"""`horosphere generate`: let a language model write."""

import argparse
from typing import Any

from horosphere.cli.common import choose_device, command, device_option, of
from horosphere.errors import UserError
from horosphere.settings import Amount, Count, Seed

COLDEST = 1e-4  # a temperature; divided by much less, logits become infinite


def add(commands: Any) -> None:
    example = 'horosphere generate runs/helm-d-tiny "Once upon"'
    generate = command(commands, "generate", run, "let a language model write", example)
    generate.add_argument("folder", metavar="RUN", help="a folder made by `horosphere train`")
    generate.add_argument("prompt", help="how the text begins")
    generate.add_argument("--tokens", metavar="N", type=of(Count), default=100, help="at most (default 100)")
    warmth = "below 1 likelier, above 1 wilder (default 0.8); see --greedy"
    generate.add_argument("--temperature", metavar="X", type=of(Amount), default=0.8, help=warmth)
    generate.add_argument("--top-k", metavar="N", type=of(Count), default=50, help="choose among so many (default 50)")
    generate.add_argument("--greedy", action="store_true", help="always the likeliest token")
    generate.add_argument("--seed", metavar="N", type=of(Seed), default=0, help="of the choices (default 0)")
    device_option(generate)


def run(args: argparse.Namespace) -> None:
    import torch

    from horosphere.models.writing import autocast, write
    from horosphere.tasks.language import load

    if not args.temperature >= COLDEST:
        how = f"it must be at least {COLDEST:g}; for the likeliest text pass --greedy"
        raise UserError(f"--temperature {args.temperature:g}: {how}")
    device = choose_device(args.device)
    model, tokenizer = load(args.folder)
    from transformers import TextStreamer  # after `load`, which says what to install where it is missing

    torch.manual_seed(args.seed)
    choice = {"temperature": args.temperature, "top_k": args.top_k, "greedy": args.greedy}
    with autocast(device):
        streamer = TextStreamer(tokenizer, skip_special_tokens=True)
        write(model.to(device), tokenizer, args.prompt, args.tokens, **choice, streamer=streamer)
