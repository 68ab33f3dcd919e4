"""A language model behind OpenAI's interface, by Python's own HTTP server: models, completions and chats.

One request writes at a time, the others wait. What a request asks and this does not do is refused, not ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from select import select
from socket import MSG_PEEK
from threading import Lock
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast, TextStreamer

from horosphere.errors import UserError, choices, one_line
from horosphere.foreign import Unreadable, parse_json
from horosphere.local_server import LocalHandler, LocalServer
from horosphere.models.writing import autocast, write
from horosphere.settings import Amount, Count, Seed, convert

LONGEST_REQUEST = 2**16  # bytes
LONGEST_ANSWER = 4096  # tokens: others wait for it
STOPS = 4  # texts that end an answer, at most; as OpenAI has it
COLDEST = 1e-4  # a temperature; below it the likeliest token is taken
MODELS, COMPLETIONS, CHATS = "/v1/models", "/v1/completions", "/v1/chat/completions"
OPTIONS = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options")
NOTES = ("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key")  # no answer depends on them
NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
# What would change an answer, and is not offered. Beside it the values that ask for nothing, as those of NOTHING do:
# clients may send every field with its default.
REFUSED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("n", "best_of"), (1,)),
    **dict.fromkeys(("echo", "suffix", "logprobs", "top_logprobs", "logit_bias", "store", "prediction", "audio"), ()),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "tools", "functions", "web_search_options"), ()),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **{"response_format": ({"type": "text"},), "modalities": (["text"],), "parallel_tool_calls": (True,)},
    **dict.fromkeys(("reasoning_effort", "verbosity"), ()),
}
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """One request, checked. Defaults are those of `horosphere generate`."""

    prompt: str
    tokens: int = 100
    temperature: float = 0.8
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False  # of a stream: whether it ends with how many tokens there were


@dataclass
class Answer:
    prompt_tokens: int
    tokens: int = 0
    reason: str = "length"

    def usage(self) -> dict[str, int]:
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens}
        return {**counts, "total_tokens": self.prompt_tokens + self.tokens}


def asked_for(body: dict[str, Any], prompt: str) -> Asked:
    """The options of a request.

    >>> asked_for({"max_tokens": 5, "stop": "."}, "Once")
    Asked(prompt='Once', tokens=5, temperature=0.8, top_p=1.0, seed=None, stop=('.',), stream=False, usage=False)
    """
    for name, harmless in REFUSED.items():
        if body.get(name) not in (*NOTHING, *harmless):
            raise UserError(f"{name}: this server does not offer it; leave it out")
    stop = body.get("stop") or ()
    stop = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stop, (list, tuple)) or len(stop) > STOPS or not all(isinstance(s, str) and s for s in stop):
        raise UserError(f"stop: give a text or up to {STOPS} of them")
    kinds = {"tokens": Count, "temperature": Amount, "top_p": Amount, "seed": Seed}
    said = {name: body.get(name) for name in kinds} | {"tokens": body.get("max_completion_tokens")}
    said["tokens"] = body.get("max_tokens") if said["tokens"] is None else said["tokens"]
    options = {name: convert(value, kinds[name], name) for name, value in said.items() if value is not None}
    if not 0 < options.get("top_p", 1.0) <= 1:
        raise UserError(f"top_p={options['top_p']}: it should be more than 0, and at most 1")
    if options.get("tokens", 0) > LONGEST_ANSWER:
        raise UserError(f"max_tokens={options['tokens']}: at most {LONGEST_ANSWER:,} are written for one request")
    stream = convert(body.get("stream") or False, bool, "stream")
    return Asked(prompt, stop=tuple(stop), **options, stream=stream, usage=_asks_usage(body, stream))


def _asks_usage(body: dict[str, Any], stream: bool) -> bool:
    more = body.get("stream_options")
    if more is None:
        return False
    if not stream:
        raise UserError('stream_options: they go with "stream": true; leave them out')
    if not isinstance(more, dict) or not more.keys() <= {"include_usage", "include_obfuscation"}:
        raise UserError("stream_options: give an object with include_usage, true or false")
    return bool(convert(more.get("include_usage") or False, bool, "include_usage"))


def require_known(body: dict[str, Any], kind: str, own: str) -> None:
    """Complain about fields that nobody reads. own: the field that holds what is asked.

    >>> require_known({"prompt": "Once", "temprature": 1}, "completion", "prompt")
    Traceback (most recent call last):
        ...
    horosphere.errors.UserError: temprature: a completion has no such field; did you mean temperature?
    """
    known = {own, "model", *OPTIONS, *NOTES, *REFUSED}
    if others := [name for name, value in body.items() if name not in known and value is not None]:
        what = f"a {kind} has no such field{'s' * (len(others) > 1)}"
        names = ", ".join(one_line(name, 40) if name else '""' for name in others)
        raise UserError(f"{names}: {what}; {choices(others[0], [own, *OPTIONS])}")


class _Stop(Exception):
    """The answer has come to one of the texts that end it."""


class _Teller(TextStreamer):
    """Tells the words of an answer as they come, up to a text that ends it."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, answer: Answer, asked: Asked, tell: Tell):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.answer, self.stop, self.tell, self.held = answer, asked.stop, tell, ""

    def put(self, value: Any) -> None:
        if not self.next_tokens_are_prompt:
            self.answer.tokens += 1
            if value.item() == self.tokenizer.eos_token_id:
                self.answer.reason = "stop"
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.held += text
        found = [place for stop in self.stop if (place := self.held.find(stop)) >= 0]
        # the last letters may be the beginning of a text that ends it
        keep = 0 if stream_end or not self.stop else max(map(len, self.stop)) - 1
        ready = min(found) if found else max(0, len(self.held) - keep)
        if ready:
            self.tell(self.held[:ready])
        self.held = self.held[ready:]
        if found:
            raise _Stop


class Served:
    """A model that answers, one request after the other."""

    def __init__(self, name: str, model: nn.Module, tokenizer: PreTrainedTokenizerFast, device: str = "cpu"):
        self.name, self.tokenizer, self.device = name, tokenizer, device
        self.model = model.to(device).eval()
        self.lock, self.born, self.ending = Lock(), int(time.time()), False

    def answer(self, asked: Asked, tell: Tell) -> Answer:
        """tell: called with each piece of the answer. What it raises ends the answer."""
        answer = Answer(1 + len(self.tokenizer(asked.prompt, add_special_tokens=False, verbose=False)["input_ids"]))
        with self.lock, autocast(self.device):
            if asked.seed is not None:
                torch.manual_seed(asked.seed)
            choice: dict[str, Any] = {"temperature": asked.temperature, "greedy": asked.temperature < COLDEST}
            if not choice["greedy"]:
                choice["top_p"] = asked.top_p

            def told(text: str) -> None:
                if self.ending:
                    raise ConnectionAbortedError("the server stops")
                tell(text)

            teller = _Teller(self.tokenizer, answer, asked, told)
            try:
                write(self.model, self.tokenizer, asked.prompt, asked.tokens, **choice, streamer=teller)
            except _Stop:
                answer.reason = "stop"
        return answer

    def end(self) -> None:
        """Break off what is being written, and wait for that: a process must not end within an operation of torch."""
        self.ending = True
        with self.lock:
            pass

    def prompt_of(self, messages: Any) -> str:
        """A chat as the text that the model was taught to read."""
        if not self.tokenizer.chat_template:
            raise UserError(f"{self.name} was not taught to chat (its tokenizer has no template): ask /v1/completions")
        said = [_said(message) for message in messages] if isinstance(messages, list) else [None]
        if None in said:
            raise UserError("messages: give a list of objects with role and content, both texts")
        try:
            text = self.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of somebody else
            raise UserError(f"messages: the template of {self.name} refuses them ({error})") from error
        text = _whole(str(text), "messages")
        return text.removeprefix(self.tokenizer.bos_token or "")  # `write` begins every text with it


class Server(LocalServer):
    def __init__(self, served: Served, host: str, port: int):
        self.served = served
        super().__init__(host, port, Handler)


class Handler(LocalHandler):
    server: Server

    def do_GET(self) -> None:
        if not self._accepts():
            return
        served = self.server.served
        model = {"id": served.name, "object": "model", "created": served.born, "owned_by": "horosphere"}
        name = unquote(self.path_asked().removeprefix(MODELS).removeprefix("/"))
        if name not in ("", served.name):
            return self._fail(HTTPStatus.NOT_FOUND, f"model {name}: here is {served.name} alone")
        self._send(model if name else {"object": "list", "data": [model]})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if not self._accepts():
            return
        try:
            body = self._body()
            chat = self.path_asked() == CHATS
            served = self.server.served
            if body.get("model") not in (None, served.name):
                return self._fail(HTTPStatus.NOT_FOUND, f"model {body['model']}: here is {served.name} alone")
            require_known(body, *(("chat", "messages") if chat else ("completion", "prompt")))
            asked = asked_for(body, served.prompt_of(body.get("messages")) if chat else _prompt(body.get("prompt")))
            (self._stream if asked.stream else self._complete)(asked, _Form(chat, served.name))
        except (UserError, Unreadable) as error:
            self._fail(HTTPStatus.BAD_REQUEST, str(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # nobody listens any more

    def do_PUT(self) -> None:
        self._accepts()  # nowhere

    do_DELETE = do_PATCH = do_OPTIONS = do_PUT

    def _complete(self, asked: Asked, form: _Form) -> None:
        pieces: list[str] = []

        def keep(text: str) -> None:
            if self._is_alone():
                raise ConnectionResetError("nobody waits for the answer")
            pieces.append(text)

        answer = self.server.served.answer(asked, keep)
        self._send({**form.whole("".join(pieces), answer.reason), "usage": answer.usage()})

    def _stream(self, asked: Asked, form: _Form) -> None:
        """Server-sent events; the end of the connection is the end of them."""
        begun: list[bool] = []

        def event(content: str) -> None:
            if not begun:
                begun.append(True)
                self.close_connection = True
                self.head(HTTPStatus.OK, "text/event-stream", [("Cache-Control", "no-cache"), ("Connection", "close")])
            self.wfile.write(f"data: {content}\n\n".encode())
            self.wfile.flush()

        answer = self.server.served.answer(asked, lambda text: event(json.dumps(form.piece(text))))
        event(json.dumps(form.piece("", answer.reason)))
        if asked.usage:
            event(json.dumps({**form.piece(""), "choices": [], "usage": answer.usage()}))
        event("[DONE]")

    def _is_alone(self) -> bool:
        """Whether the client has gone: then its side of the connection has ended."""
        if not select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, MSG_PEEK)
        except OSError:
            return True

    # -- requests and replies -------------------------------------------------------------------------------------

    def _accepts(self) -> bool:
        """Whether there is such a thing here, and it may be asked so. A complaint is sent."""
        if (said := self.stranger()) is not None:
            self._fail(HTTPStatus.FORBIDDEN, f"Host {said}: this server is for its own machine")
            return False
        path = self.path_asked()
        reads = path == MODELS or path.startswith(f"{MODELS}/")
        methods = ["GET", "HEAD"] if reads else ["POST"] if path in (COMPLETIONS, CHATS) else []
        if not methods:
            there = f"{MODELS}, {COMPLETIONS} and {CHATS}"
            self._fail(HTTPStatus.NOT_FOUND, f"{path}: there is nothing of this name; here are {there}")
        elif self.command not in methods:
            what = f"{path}: {self.command} is not allowed; use {' or '.join(methods)}"
            self._fail(HTTPStatus.METHOD_NOT_ALLOWED, what, [("Allow", ", ".join(methods))])
        return self.command in methods

    def _body(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":  # pages of the web may send other types unasked
            raise UserError("send Content-Type: application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST_REQUEST:
            self.close_connection = True  # what follows is not read
            raise UserError(f"send Content-Length, at most {LONGEST_REQUEST:,} bytes")
        body = parse_json(self.rfile.read(int(length)))
        if not isinstance(body, dict):
            raise UserError("send a JSON object")
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What Python's server itself refuses, such as a method that is none: in JSON too."""
        self.close_connection = True
        self._fail(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _fail(self, status: HTTPStatus, message: str, more: Iterable[tuple[str, str]] = ()) -> None:
        if self.command not in ("GET", "HEAD"):
            self.close_connection = True  # its body may not have been read
        error = {"message": message, "type": "invalid_request_error", "code": status.value}
        self._send({"error": error}, status, more)

    def _send(
        self, content: dict[str, Any], status: HTTPStatus = HTTPStatus.OK, more: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.reply(status, "application/json", json.dumps(content).encode(), more)


def _said(message: Any) -> dict[str, Any] | None:
    """A message of a chat whose content is one text, which may come in parts; None where it is none."""
    role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
    if isinstance(content, list):
        parts: list[Any] = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(parts) if all(isinstance(part, str) for part in parts) else None
    return {**message, "content": content} if isinstance(role, str) and isinstance(content, str) else None


def _prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise UserError("prompt: give one text")
    return _whole(prompt, "prompt")


def _whole(text: str, field: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError(f"{field}: half of a letter (a lone surrogate); send whole ones")
    return text


class _Form:
    """An answer, whole or in pieces, as a completion or as a chat."""

    def __init__(self, chat: bool, model: str):
        self.chat, self.model = chat, model
        self.id, self.created = f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}", int(time.time())

    def whole(self, text: str, reason: str) -> dict[str, Any]:
        what = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text, "logprobs": None}
        return self._around("chat.completion" if self.chat else "text_completion", what, reason)

    def piece(self, text: str, reason: str | None = None) -> dict[str, Any]:
        what = {"delta": {"role": "assistant", "content": text}} if self.chat else {"text": text, "logprobs": None}
        return self._around("chat.completion.chunk" if self.chat else "text_completion", what, reason)

    def _around(self, kind: str, what: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, **what, "finish_reason": reason}
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": [choice]}
