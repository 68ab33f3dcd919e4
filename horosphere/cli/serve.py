"""`horosphere serve`: a language model behind OpenAI's interface."""

import argparse
from pathlib import Path
from typing import Annotated, Any

from horosphere.cli.common import choose_device, command, device_option, named, of
from horosphere.settings import Range

PORT = 8000
Port = Annotated[int, Range(least=0, most=65535)]


def add(commands: Any) -> None:
    example = "horosphere serve runs/helm-d-tiny"
    serve = command(commands, "serve", run, "answer over HTTP, as OpenAI's interface has it", example)
    serve.add_argument("folder", metavar="RUN", help="a folder made by `horosphere train`")
    where = "where it listens (default 127.0.0.1: this machine alone)"
    serve.add_argument("--host", metavar="NAME", type=named, default="127.0.0.1", help=where)
    serve.add_argument("--port", metavar="N", type=of(Port), default=PORT, help=f"default {PORT}; 0: any that is free")
    device_option(serve)


def run(args: argparse.Namespace) -> None:
    from horosphere.tasks.language import load

    device = choose_device(args.device)
    model, tokenizer = load(args.folder)
    from horosphere.models.serving import Served, Server  # after `load`, which says what to install

    served = Served(Path(args.folder).resolve().name, model, tokenizer, device)
    with Server(served, args.host, args.port) as server:
        address = f"http://{args.host}:{server.server_address[1]}/v1"
        open_to_all = "" if server.private else "; whoever reaches this address may ask: there is no password"
        print(f"{served.name} answers at {address} ({device}){open_to_all}; Ctrl-C stops", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            served.end()
            print("stopped")
