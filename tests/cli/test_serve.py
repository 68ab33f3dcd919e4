"""`horosphere serve`, asked by a plain HTTP client."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="language models need transformers")

from horosphere.cli import main
from horosphere.models.serving import LONGEST_REQUEST, Asked, Served, Server
from horosphere.tasks.language import load
from tests.tasks.tiny import LANGUAGE, write_text

ROOT = Path(__file__).parents[2]
JSON = {"Content-Type": "application/json"}
HALF_A_LETTER = "{}: half of a letter (a lone surrogate); send whole ones"
MESSAGES = "messages: give a list of objects with role and content, both texts"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_text("cats.txt")
        words = ["train", "helm-d-tiny", "data=cats.txt", *LANGUAGE, "--quiet", "--device", "cpu", "--out", "cats"]
        assert main(words) == 0
    return folder / "cats"


@contextmanager
def serving(folder, template=None):
    model, tokenizer = load(folder)
    tokenizer.chat_template = template
    with Server(Served("cats", model, tokenizer), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def port(trained):
    with serving(trained) as port:
        yield port


def ask(port, path, body=None, headers=JSON):
    """(status, content)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, headers if body is not None else {})
    reply = connection.getresponse()
    content = reply.read().decode()
    connection.close()
    kind = reply.headers.get_content_type()
    return reply.status, json.loads(content) if kind == "application/json" else content


def events(text):
    """What streamed, and the last line."""
    told = re.findall(r"data: (.*)\n\n", text)
    assert "".join(f"data: {line}\n\n" for line in told) == text
    return [json.loads(line) for line in told[:-1]], told[-1]


GREEDY = {"prompt": "the cat", "max_tokens": 16, "temperature": 0}


def test_it_says_which_model_it_has(port):
    status, content = ask(port, "/v1/models")
    assert (status, content["object"]) == (200, "list")
    assert [model["id"] for model in content["data"]] == ["cats"]


def test_it_completes(port, trained):
    from horosphere.models.writing import write

    status, content = ask(port, "/v1/completions", {**GREEDY, "model": "cats"})
    assert status == 200
    (choice,) = content["choices"]
    assert "the cat" + choice["text"] == write(*load(trained), "the cat", 16, greedy=True)
    assert (content["object"], content["model"]) == ("text_completion", "cats")
    assert choice["finish_reason"] == ("length" if content["usage"]["completion_tokens"] == 16 else "stop")
    assert content["usage"]["total_tokens"] == sum(content["usage"][f"{k}_tokens"] for k in ("prompt", "completion"))


def test_it_streams_what_it_completes(port):
    asked = {"prompt": "the cat", "max_tokens": 40, "temperature": 2.0, "seed": 1}
    whole = ask(port, "/v1/completions", asked)[1]["choices"][0]
    status, text = ask(port, "/v1/completions", {**asked, "stream": True})
    pieces, last = events(text)
    assert (status, last) == (200, "[DONE]")
    assert len(pieces) > 2
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == whole["text"]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + [
        whole["finish_reason"]
    ]


def test_the_same_seed_writes_the_same(port):
    asked = {"prompt": "the", "max_tokens": 12, "temperature": 2.0, "top_p": 0.9}
    texts = [ask(port, "/v1/completions", {**asked, "seed": seed})[1]["choices"][0]["text"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("stream", [False, True])
def test_it_stops_before_a_text_that_ends_it(port, stream):
    whole = ask(port, "/v1/completions", GREEDY)[1]["choices"][0]["text"]
    stop = whole[5:8]
    _, content = ask(port, "/v1/completions", {**GREEDY, "stop": ["@@@@@@", stop], "stream": stream})
    choices = [piece["choices"][0] for piece in (events(content)[0] if stream else [content])]
    assert "".join(choice["text"] for choice in choices) == whole[: whole.index(stop)]
    assert choices[-1]["finish_reason"] == "stop"


def test_a_chat_needs_a_template(port, trained):
    messages = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 6, "temperature": 0}
    status, content = ask(port, "/v1/chat/completions", messages)
    assert status == 400
    assert content["error"]["message"].startswith("cats was not taught to chat (its tokenizer has no template)")
    with serving(trained, TEMPLATE) as other:
        status, content = ask(other, "/v1/chat/completions", messages)
        as_text = {"prompt": "user: the cat\nassistant:", "max_tokens": 6, "temperature": 0}
        text = ask(other, "/v1/completions", as_text)[1]["choices"][0]["text"]
        assert (status, content["object"]) == (200, "chat.completion")
        assert content["choices"][0]["message"] == {"role": "assistant", "content": text}
        pieces, _ = events(ask(other, "/v1/chat/completions", {**messages, "stream": True})[1])
        assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == text
        assert ask(other, "/v1/chat/completions", {"messages": "the cat"})[0] == 400
        parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
        in_parts = {**messages, "messages": [{"role": "user", "content": parts}]}
        assert ask(other, "/v1/chat/completions", in_parts)[1]["choices"][0]["message"]["content"] == text
        for wrong in ({}, {"role": "user"}, {"role": 5, "content": "a"}, {"role": "user", "content": None}):
            status, content = ask(other, "/v1/chat/completions", {"messages": [wrong]})
            assert (status, content["error"]["message"]) == (400, MESSAGES)
        for part in ("the cat", {"type": "image_url", "image_url": {}}, {"type": "text", "text": 5}):
            wrong = {"role": "user", "content": [part]}
            assert ask(other, "/v1/chat/completions", {"messages": [wrong]})[0] == 400
        status, content = ask(other, "/v1/chat/completions", {"messages": [{"role": "user", "content": "\ud800"}]})
        assert (status, content["error"]["message"]) == (400, HALF_A_LETTER.format("messages"))


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/completions", {"prompt": 3}, 400, "prompt: give one text"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "prompt: give one text"),
        ("/v1/completions", {**GREEDY, "max_tokens": "many"}, 400, "tokens=many"),
        ("/v1/completions", {**GREEDY, "max_tokens": 0}, 400, "tokens=0"),
        ("/v1/completions", {**GREEDY, "temperature": -1}, 400, "temperature=-1"),
        ("/v1/completions", {**GREEDY, "top_p": 1.5}, 400, "top_p=1.5"),
        ("/v1/completions", {**GREEDY, "stop": [""]}, 400, "stop: give a text"),
        ("/v1/completions", {**GREEDY, "n": 2}, 400, "n: this server does not offer it"),
        ("/v1/completions", {**GREEDY, "echo": True}, 400, "echo: this server does not offer it"),
        ("/v1/completions", {**GREEDY, "logprobs": 1}, 400, "logprobs: this server does not offer it"),
        ("/v1/completions", {**GREEDY, "max_tokens": 10**9}, 400, "at most 4,096 are written"),
        ("/v1/completions", {**GREEDY, "prompt": "\ud800"}, 400, "half of a letter"),
        ("/v1/completions", {**GREEDY, "logprobs": 5}, 400, "logprobs: this server does not offer it"),
        ("/v1/completions", {**GREEDY, "model": "gpt"}, 404, "model gpt: here is cats alone"),
        ("/v1/completions", b"[]", 400, "send a JSON object"),
        ("/v1/completions", b"{", 400, ""),
        ("/v1/completions", b"[" * 10**4, 400, ""),
        ("/v1/completions", b" " * (LONGEST_REQUEST + 1), 400, "at most 65,536 bytes"),
        (
            "/v1/completions",
            {**GREEDY, "temprature": 1},
            400,
            "temprature: a completion has no such field; did you mean temperature?",
        ),
        (
            "/v1/completions",
            {**GREEDY, "top_k": 5, "min_p": 0.1},
            400,
            "top_k, min_p: a completion has no such fields; ",
        ),
        (
            "/v1/completions",
            {**GREEDY, "messages": []},
            400,
            "messages: a completion has no such field; choose from prompt, max_tokens",
        ),
        ("/v1/completions", {**GREEDY, "frequency_penalty": 0.5}, 400, "frequency_penalty: this server does not offer"),
        ("/v1/completions", {**GREEDY, "store": True}, 400, "store: this server does not offer it"),
        ("/v1/completions", {**GREEDY, "stream": "yes"}, 400, "stream=yes: it should be true or false"),
        ("/v1/completions", {**GREEDY, "stream_options": {}}, 400, 'stream_options: they go with "stream": true'),
        ("/v1/completions", {**GREEDY, "stream": True, "stream_options": {"usage": True}}, 400, "stream_options: give"),
        ("/v1/chat/completions", {"prompt": "the cat"}, 400, "prompt: a chat has no such field; "),
        ("/v1/embeddings", {}, 404, "/v1/completions"),
        ("/v1/models/dogs", None, 404, "model dogs: here is cats alone"),
        ("/v1/completions", None, 405, "/v1/completions: GET is not allowed; use POST"),
        ("/v1/models", {}, 405, "/v1/models: POST is not allowed; use GET or HEAD"),
        ("/v1/none", None, 404, "/v1/models"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_it_cannot_do_it_says(port, path, body, status, words):
    found, content = ask(port, path, body)
    assert found == status
    assert words in content["error"]["message"]


def test_what_clients_say_unasked_is_accepted(port):
    """OpenAI's own sends what it is given, and no more; others send every field with its default, or null."""
    plain = ask(port, "/v1/completions", GREEDY)[1]["choices"]
    notes = {"user": "me", "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "x"}
    defaults = {"n": 1, "best_of": 1, "echo": False, "suffix": None, "logprobs": None, "logit_bias": {}, "store": False}
    more = {"presence_penalty": 0, "frequency_penalty": 0.0, "stop": None, "stream": False, "stream_options": None}
    chats = {"response_format": {"type": "text"}, "tool_choice": "none", "modalities": ["text"], "tools": []}
    unknown = {"something_new": None}
    status, content = ask(port, "/v1/completions", GREEDY | notes | defaults | more | chats | unknown)
    assert (status, content["choices"]) == (200, plain)


def test_a_stream_ends_with_its_usage_where_that_is_asked(port):
    usage = ask(port, "/v1/completions", GREEDY)[1]["usage"]
    asked = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}
    pieces, last = events(ask(port, "/v1/completions", asked)[1])
    assert (last, pieces[-1]["choices"], pieces[-1]["usage"]) == ("[DONE]", [], usage)
    assert all(piece["choices"] for piece in pieces[:-1])


def reply_to(port, method, path, body=None):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, reply.headers, content


def test_one_model_by_its_name(port):
    (known,) = ask(port, "/v1/models")[1]["data"]
    assert ask(port, "/v1/models/cats") == (200, known)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize(("path", "allowed"), [("/v1/models", "GET, HEAD"), ("/v1/completions", "POST")])
def test_other_methods_are_refused_in_json(port, method, path, allowed):
    status, headers, content = reply_to(port, method, path, b"{}")
    assert (status, headers["Allow"], headers.get_content_type()) == (405, allowed, "application/json")
    how = allowed.replace(", ", " or ")
    assert json.loads(content)["error"]["message"] == f"{path}: {method} is not allowed; use {how}"


def test_what_is_no_method_or_no_request_is_refused_in_json(port):
    status, headers, content = reply_to(port, "FETCH", "/v1/models")
    assert (status, headers.get_content_type()) == (501, "application/json")
    assert "FETCH" in json.loads(content)["error"]["message"]
    assert reply_to(port, "DELETE", "/v1/none")[0] == 404
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(b"GET /v1/models HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(200)) + b"\r\n")
        head, _, content = b"".join(iter(lambda: line.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(content)["error"]["code"] == 431


def test_head_is_get_without_its_body(port):
    for path in ("/v1/models", "/v1/models/cats", "/v1/none"):
        got, head = (reply_to(port, method, path) for method in ("GET", "HEAD"))
        assert head[0] == got[0]
        assert [head[1][name] for name in ("Content-Type", "Content-Length")] == ["application/json", str(len(got[2]))]
        assert head[2] == b""


def test_who_hangs_up_leaves_no_word_on_the_console(trained, capfd):
    post = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    whole = json.dumps({**GREEDY, "stream": True, "max_tokens": 200}).encode()
    said = [
        b"",
        b"GET /v1/mod",
        b"GET /v1/models HTTP/1.1\r\n\r\n" * 200,
        post % 1000 + b"{",
        post % len(whole) + whole,
    ]
    with serving(trained) as port:
        for words in said:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed at once, by RST
                line.sendall(words)
                time.sleep(0.05)
        assert ask(port, "/v1/completions", GREEDY)[0] == 200
    assert capfd.readouterr().err == ""


def test_pages_of_the_web_are_kept_out(port):
    assert ask(port, "/v1/completions", GREEDY, {"Content-Type": "text/plain"})[0] == 400
    hosts = {"evil.example:80": 403, "[::1": 403, "[::1]:80": 200, f"localhost:{port}": 200, "127.0.0.1": 200}
    assert {host: ask(port, "/v1/completions", GREEDY, {**JSON, "Host": host})[0] for host in hosts} == hosts


def test_who_goes_away_does_not_stop_the_others(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**GREEDY, "max_tokens": 200, "stream": True}), JSON)
    connection.getresponse().read(1)
    connection.sock.close() if connection.sock else connection.close()
    assert ask(port, "/v1/completions", GREEDY)[0] == 200


def test_an_answer_that_nobody_waits_for_is_broken_off(trained):
    """Without a stream too: the next request would wait for all of it."""
    model, tokenizer = load(trained)
    served = Served("cats", model, tokenizer)
    with Server(served, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({**GREEDY, "max_tokens": 4096}), JSON)
        while not served.lock.locked():
            time.sleep(0.01)
        connection.close()
        assert served.lock.acquire(timeout=5)
        served.lock.release()
        server.shutdown()
        thread.join()


def test_a_server_ends_within_an_answer(trained):
    """And waits for it: a process that ends within an operation of torch is aborted."""
    model, tokenizer = load(trained)
    served, said = Served("cats", model, tokenizer), []

    def stop_at_once(text):
        said.append(text)
        ending = threading.Thread(target=served.end)
        ending.start()
        while not served.ending:
            time.sleep(0.001)
        assert ending.is_alive()
        said.append(ending)

    with pytest.raises(ConnectionAbortedError):
        served.answer(Asked("the cat", tokens=200, temperature=2.0, seed=0), stop_at_once)
    said[1].join(5)
    assert not said[1].is_alive()
    assert len(said) == 2


def test_the_command_serves_until_it_is_stopped(trained, run):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "horosphere", "serve", str(trained), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"cats answers at http://127\.0\.0\.1:(\d+)/v1 \(cpu\); Ctrl-C stops\n", line)
            assert found, (line, process.stderr.read() if process.poll() is not None else "")
            assert ask(int(found[1]), "/v1/completions", GREEDY)[0] == 200
            code, _, err = run("serve", str(trained), "--port", found[1], "--device", "cpu")
            assert (code, err.count("\n")) == (2, 1)
            assert err.startswith(f"horosphere: 127.0.0.1, port {found[1]}: Address already in use; choose another")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (0, "stopped\n", "")
        finally:
            process.kill()  # or a test that fails would wait for it for ever
