"""Bad input of every kind: an error that names the thing, the place and the way out; the process lives on."""

import http.client
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile

import pytest

from harness import MKMODEL, MODEL, SKEIN, Node, free_port


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("models")
    subprocess.run([MKMODEL, "--arch", "llama", "--type", "Q8_0", "--ctx", "256", "--seed", "7", str(d / "tiny.gguf")], check=True)
    return d


@pytest.fixture(scope="module")
def node(tiny):
    n = Node(models=str(tiny)).wait_up()
    yield n
    n.stop()


def run(*args, **kw):
    return subprocess.run([SKEIN, "run", *args], capture_output=True, text=True, timeout=60, **kw)


def refused(path, *says):
    r = run(str(path), "--raw", "-n", "1", "hello")
    assert r.returncode == 1 and not r.stdout, (r.returncode, r.stdout, r.stderr)
    for s in says:
        assert s in r.stderr, r.stderr
    assert "signal" not in r.stderr and "internal error" not in r.stderr
    return r.stderr


# ---- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 500, 0.3, 0.9, 0.999])
def test_truncated_file(tiny, tmp_path, keep):
    data = (tiny / "tiny.gguf").read_bytes()
    n = keep if isinstance(keep, int) else int(len(data) * keep)
    (tmp_path / "cut.gguf").write_bytes(data[:n])
    refused(tmp_path / "cut.gguf", "cut.gguf")


def patched(tiny, tmp_path, find, replace):
    data = (tiny / "tiny.gguf").read_bytes()
    assert data.count(find) == 1, data.count(find)
    p = tmp_path / "patched.gguf"
    p.write_bytes(data.replace(find, replace))
    return p


def kv_u32(key, value):
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value)


def read_u32(tiny, key):
    data = (tiny / "tiny.gguf").read_bytes()
    head = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 4)
    return struct.unpack_from("<I", data, data.index(head) + len(head))[0]


@pytest.mark.parametrize("key, value", [
    ("llama.attention.head_count", 0), ("llama.embedding_length", 0), ("llama.block_count", 0), ("llama.block_count", 0xFFFFFFFF),
    ("llama.attention.head_count_kv", 0xFFFFFFFF), ("llama.embedding_length", 0xFFFFFFF0), ("llama.feed_forward_length", 0),
])
def test_hostile_metadata(tiny, tmp_path, key, value):
    p = patched(tiny, tmp_path, kv_u32(key, read_u32(tiny, key)), kv_u32(key, value))
    refused(p, "patched.gguf")


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_other_versions(tiny, tmp_path, version):
    data = bytearray((tiny / "tiny.gguf").read_bytes())
    struct.pack_into("<I", data, 4, version)
    (tmp_path / "v.gguf").write_bytes(data)
    refused(tmp_path / "v.gguf", "v.gguf", "version" if version < 100 else "endian")


@pytest.mark.parametrize("offset, value", [(8, 2**63), (8, 2**32), (16, 2**63), (16, 2**40)])
def test_counts_that_wrap(tiny, tmp_path, offset, value):
    data = bytearray((tiny / "tiny.gguf").read_bytes())
    struct.pack_into("<Q", data, offset, value)
    (tmp_path / "n.gguf").write_bytes(data)
    refused(tmp_path / "n.gguf", "n.gguf")


@pytest.mark.parametrize("n, loads", [(3, True), (4, True), (5, False)])
def test_rope_dimension_sections(tiny, tmp_path, n, loads):
    """Three entries where four are usual: that file loads. Added as one more key-value pair."""
    data = (tiny / "tiny.gguf").read_bytes()
    key = b"llama.rope.dimension_sections"
    kv = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 5, n) + struct.pack(f"<{n}i", *[0] * n)
    n_kv = struct.unpack_from("<Q", data, 16)[0]
    # keep the data section aligned: the pair is padded by a string key of the missing length
    pad = b"x" * ((-(len(kv) + 8 + 1 + 4 + 8)) % 32)
    filler = struct.pack("<Q", 1) + b"z" + struct.pack("<IQ", 8, len(pad)) + pad
    out = data[:16] + struct.pack("<Q", n_kv + 2) + kv + filler + data[24:]
    p = tmp_path / "sections.gguf"
    p.write_bytes(out)
    if loads:
        r = run(str(p), "--raw", "-n", "1", "hello")
        assert r.returncode == 0, r.stderr
    else:
        refused(p, "rope.dimension_sections", "5")


@pytest.mark.parametrize("content, says", [
    (b"<!doctype html><html>", "HTML"), (b"PK\x03\x04" + b"\0" * 64, "zip"), (b"", "empty"), (b"hello world, not a model", "GGUF"),
    (struct.pack("<Q", 40) + b'{"a":{"dtype":"F32","shape":[1],"x":1}} ' + b"\0" * 40, "safetensors"),
])
def test_other_files(tmp_path, content, says):
    (tmp_path / "other.gguf").write_bytes(content)
    refused(tmp_path / "other.gguf", "other.gguf", says)


def test_missing_file(tmp_path):
    refused(tmp_path / "nowhere.gguf", "nowhere.gguf")


def test_a_folder_and_a_device(tmp_path):
    refused(tmp_path, str(tmp_path))
    (tmp_path / "x.gguf").symlink_to("/dev/zero")
    refused(tmp_path / "x.gguf", "regular file")


def test_random_damage_never_kills_by_signal(tiny, tmp_path):
    """Every 41st byte of the header region flipped, one at a time."""
    data = (tiny / "tiny.gguf").read_bytes()
    p = tmp_path / "d.gguf"
    for at in range(0, 3000, 61):
        b = bytearray(data)
        b[at] ^= 0xFF
        p.write_bytes(b)
        r = subprocess.run([SKEIN, "inspect", str(p)], capture_output=True, text=True, timeout=60)
        assert r.returncode in (0, 1), (at, r.returncode, r.stderr)
        if at % 244 == 0:
            r = run(str(p), "--raw", "-n", "1", "hello")
            assert r.returncode in (0, 1) and "signal" not in r.stderr, (at, r.returncode, r.stderr)


# ---- memory, disk, ports, peers -----------------------------------------------------------------------------


def test_a_model_that_does_not_fit(tiny):
    n = Node("--memory", "1", models=str(tiny)).wait_up()
    try:
        status, r = n.request("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}, timeout=90)
        assert status in (503, 507), (status, r)
        assert "MiB" in r["error"]["message"] and "tiny" in r["error"]["message"], r
        assert n.request("/health")[0] == 200
    finally:
        n.stop()


def test_port_in_use(node):
    for args in (["--port", str(node.port), "--bus-port", str(free_port())], ["--port", str(free_port()), "--bus-port", str(node.bus)]):
        r = subprocess.run([SKEIN, "up", *args, "--data-dir", node.home + "-second"], capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and args[1 if str(node.port) in args else 3] in r.stderr and "use" in r.stderr, r.stderr
    shutil.rmtree(node.home + "-second", ignore_errors=True)


@pytest.mark.parametrize("args, says", [
    (["--cpu-mask", "bogus"], "no kernel set of this architecture"),
    (["--threads", "257"], "must be from 0 to 256"),
    (["--activations", "5"], "activations of 5 bits"),
])
def test_a_node_does_not_start_with_what_no_model_could_run(args, says, tmp_path):
    r = subprocess.run([SKEIN, "up", "--port", str(free_port()), "--data-dir", str(tmp_path), *args], capture_output=True, text=True,
                       timeout=20)
    assert r.returncode == 2 and says in r.stderr, r.stderr


def test_one_node_per_data_folder(node):
    r = subprocess.run([SKEIN, "up", "--port", "0", "--bus-port", "0", "--data-dir", node.home], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and node.home in r.stderr, r.stderr


def test_a_peer_that_is_not_there(tiny):
    dead = free_port()
    n = Node("--peer", f"127.0.0.1:{dead}", "--peer", "no-such-host.invalid", models=str(tiny)).wait_up()
    try:
        n.wait(lambda x: str(dead) in x.output() and "no-such-host.invalid" in x.output(), what="log line of each peer")
        assert len([x for x in n.state()["nodes"] if x["state"] in ("self", "live")]) == 1
        status, r = n.request("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}, timeout=60)
        assert status == 200, r
    finally:
        n.stop()


def test_a_malformed_peer():
    r = subprocess.run([SKEIN, "up", "--port", "0", "--bus-port", "0", "--peer", "host:99999"], capture_output=True, text=True, timeout=60)
    assert r.returncode in (1, 2) and "99999" in r.stderr


def test_a_peer_with_another_secret(tiny):
    a = Node("--join-key", "right", models=str(tiny)).wait_up()
    b = Node("--join-key", "wrong", peers=[a], models=str(tiny)).wait_up()
    try:
        b.wait(lambda x: "key" in x.output() or "secret" in x.output(), what="log line about the key")
        assert len([x for x in a.state()["nodes"] if x["state"] in ("self", "live")]) == 1
    finally:
        a.stop()
        b.stop()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root to mount a small file system")
def test_a_full_disk(tiny, tmp_path):
    """The state folder's disk is full: start says so; running nodes go on."""
    d = tmp_path / "disk"
    d.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(d)]).returncode:
        pytest.skip("can't mount a tmpfs here")
    try:
        fd = os.open(d / "ballast", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(fd, b"x" * 4096):
                pass
        except OSError:
            os.close(fd)
        r = subprocess.run([SKEIN, "up", "--port", "0", "--bus-port", "0", "--data-dir", str(d / "data")], capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and str(d) in r.stderr and "space" in r.stderr, r.stderr
    finally:
        subprocess.run(["umount", "-l", str(d)])


# ---- HTTP -----------------------------------------------------------------------------------------------------


def test_json_that_is_not_json(node):
    for body in (b"", b"{", b"hello", b'{"model": "tiny",}', b"\xff\xfe", b'{"model": "tiny", "model": "x"}'):
        status, r = node.request("/v1/chat/completions", body)
        assert status == 400 and "line" in r["error"]["message"], (body, r)
        assert set(r["error"]) == {"message", "type", "param", "code"}


def test_deeply_nested_json(node):
    status, r = node.request("/v1/chat/completions", b'{"a":' + b"[" * 1000000)
    assert status == 400 and "error" in r


def test_a_100_mb_body(node):
    c = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    c.putrequest("POST", "/v1/chat/completions")
    c.putheader("Content-Length", str(100_000_000))
    c.endheaders()
    try:
        for _ in range(100):
            c.send(b"x" * 1_000_000)
    except (BrokenPipeError, ConnectionResetError):
        pass
    r = c.getresponse()
    body = r.read()
    assert r.status == 413 and b"request_too_large" in body, (r.status, body[:300])
    rss = int(next(line.split()[1] for line in open(f"/proc/{node.p.pid}/status") if line.startswith("VmHWM")))
    assert rss < 100_000, rss  # kB: it was never kept
    assert node.request("/health")[0] == 200


def test_unknown_model_and_routes(node, tiny):
    status, r = node.request("/v1/chat/completions", {"model": "tinny", "messages": [{"role": "user", "content": "x"}]})
    assert status == 404 and r["error"]["code"] == "model_not_found" and "tinny" in r["error"]["message"]
    for path in ("/etc/passwd", "./tiny.gguf", "../../tiny.gguf"):
        status, r = node.request("/v1/chat/completions", {"model": path, "messages": [{"role": "user", "content": "x"}]})
        assert status == 404, (path, r)
    # A file below the folder that the node was started in is none of the client's business, nor whether it is there.
    with tempfile.TemporaryDirectory(dir=".", prefix="models-") as folder:
        shutil.copy(tiny / "tiny.gguf", folder)
        inside = os.path.basename(folder) + "/tiny.gguf"
        for path in (inside, inside + "/x", inside + ".not-there"):
            bodies = [node.request("/v1/models/" + path), node.request(f"/instance/previews?model_id={path}"),
                      node.request("/v1/chat/completions", {"model": path, "messages": [{"role": "user", "content": "x"}]}),
                      node.request("/place_instance", {"model_id": path})]
            for status, r in bodies:
                assert status == 404 and f'there is no model "{path}"' in r["error"]["message"], (path, status, r)
    assert node.request("/nowhere")[0] == 404
    assert node.request("/v1/chat/completions", method="GET")[0] == 405
    assert node.request("/state/nodes/0/id")[0] == 200
    assert node.request("/state/nodes/99")[0] == 404
    assert node.request("/instance/none")[0] == 404
    assert node.request("/instance/none", method="DELETE")[0] == 404


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/9.9\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"A" * 70000 + b"\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n\r\n",
])
def test_broken_http(node, raw):
    with socket.create_connection(("127.0.0.1", node.port), 5) as s:
        s.settimeout(10)
        s.sendall(raw)
        try:
            reply = s.recv(4096)
        except (TimeoutError, ConnectionResetError):
            reply = b""
    assert not reply or b" 4" in reply[:13] or b" 5" in reply[:13], reply[:100]
    assert node.request("/health")[0] == 200


def test_clients_that_leave_at_random(node):
    """A hundred connections that break off at some byte; afterwards everything works."""
    body = b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":200,"ignore_eos":true}'
    raw = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for i in range(100):
        with socket.create_connection(("127.0.0.1", node.port), 5) as s:
            s.sendall(raw[:len(raw) * (i + 10) // 100])
            if i % 3 == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    status, r = node.request("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "ignore_eos": True}, timeout=90)
    assert status == 200 and r["usage"]["completion_tokens"] == 3, r
    node.wait(lambda n: n.state()["requests"]["open"] == 0, what="end of all requests")


def test_a_slow_stream_of_many(node):
    """Two hundred complete streams: each has a finish reason and the terminator."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 4, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    for _ in range(200):
        status, text = node.request("/v1/chat/completions", body)
        assert status == 200 and '"finish_reason":"length"' in text and '"completion_tokens":4' in text and text.endswith("data: [DONE]\n\n")


def test_the_model_list_needs_no_model(node):
    assert MODEL in [m["id"] for m in node.request("/v1/models")[1]["data"]]
    assert pathlib.Path(node.home).exists()
