"""More long chats than there is room for: an instance answers them all, whole and as if each were alone, one after the other if need be."""

import concurrent.futures
import http.client
import json
import re

import pytest

from harness import MODEL, Node

CTX, ANSWER = 1024, 30  # tokens
KV_BYTES = 30 * 3 * 64 * 2 * 2  # a token's: layers, KV heads, elements of a head, keys and values, bytes
THINGS = ["lighthouse", "bakery", "planet", "compiler", "harbour", "garden", "mountain", "bicycle"]


def body(thing, **more):
    """Of about 600 tokens, from the first word on another one for each thing."""
    text = f"{thing.capitalize()}. " + f"The {thing} was old and nobody knew who had built it. " * 45 + "Continue the story."
    return {"model": MODEL, "messages": [{"role": "system", "content": f"You tell of a {thing}."}, {"role": "user", "content": text}],
            "temperature": 0, "max_tokens": ANSWER, "ignore_eos": True} | more


@pytest.fixture(scope="module")
def node(need_model):
    """With as little memory as the model is placed in: the refusal of less says how much that is."""
    args = ["--ctx", str(CTX), "--memory"]
    small = Node(*args, "1").wait_up()
    status, r = small.request("/place_instance", {"model_id": MODEL})
    small.stop()
    need = re.search(r"needs ([\d.]+) MiB", r["error"]["message"])
    assert status != 200 and need, r
    n = Node(*args, str(int(float(need.group(1))) + 1)).wait_up()
    yield n
    n.stop()


def ask(node, thing):
    status, r = node.request("/v1/chat/completions", body(thing), timeout=300)
    assert status == 200, r
    assert r["usage"]["completion_tokens"] == ANSWER and r["choices"][0]["finish_reason"] == "length", r
    return r["choices"][0]["message"]["content"], r["usage"]["total_tokens"]


def room(node):
    (instance,) = node.state()["instances"].values()
    return instance["shards"][0]["kv_bytes"] // KV_BYTES


def test_all_are_answered_whole_and_unchanged(node):
    alone = [ask(node, t) for t in THINGS]
    need = sum(n for _, n in alone)
    print("tokens", need, "room", room(node))
    assert need > 1.3 * room(node), "this would show nothing"
    with concurrent.futures.ThreadPoolExecutor(len(THINGS)) as pool:
        assert list(pool.map(lambda t: ask(node, t), THINGS)) == alone


def leave_in_the_middle(node, thing):
    """Once it has some tokens, and with them all of the prompt in the cache."""
    c = http.client.HTTPConnection("127.0.0.1", node.port, timeout=300)
    c.request("POST", "/v1/chat/completions", json.dumps(body(thing, stream=True, max_tokens=CTX - 700)), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200
    n = 0
    while n < 5:
        line = r.readline()
        assert line
        n += line.startswith(b"data: ")
    c.close()


def test_who_leaves_frees_its_room(node):
    """All that left together would have had more than there is."""
    answer, n = ask(node, THINGS[0])
    for i in range(room(node) // (n - ANSWER) + 2):
        leave_in_the_middle(node, THINGS[i % len(THINGS)])
    assert ask(node, THINGS[0]) == (answer, n)
    node.wait(lambda n: n.state()["requests"]["open"] == 0, what="end of all requests")
