"""Model files: each node fetches what its layers need, once from the origin for all of them."""

import hashlib
import http.server
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from harness import MKMODEL, SKEIN, Node

SHAPE = "--arch llama --layers 8 --dim 512 --heads 8 --kv-heads 4 --ffn 2048 --vocab 8192 --ctx 512 --type F16".split()


class Origin(http.server.BaseHTTPRequestHandler):
    """A file with ranges; counts what it sends."""
    protocol_version = "HTTP/1.1"
    data, sent, lock = b"", 0, threading.Lock()
    other, pause_s = b"", 0  # of other.gguf; between two pieces of a file

    def do_GET(self):
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        data = self.other if self.path == "/other.gguf" else self.data
        first, last = (int(m[1]), min(int(m[2]), len(data) - 1)) if m else (0, len(data) - 1)
        piece = data[first:last + 1]
        self.send_response(206 if m else 200)
        if m:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        for i in range(0, len(piece), 1 << 20):
            time.sleep(Origin.pause_s if data is self.data else 0)
            try:
                self.wfile.write(piece[i:i + (1 << 20)])
            except OSError:
                return
        with Origin.lock:
            Origin.sent += len(piece)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    d = tmp_path_factory.mktemp("origin")
    path = d / "shared.gguf"
    subprocess.run([MKMODEL, *SHAPE, str(path)], check=True, stdout=subprocess.DEVNULL)
    Origin.data = path.read_bytes()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    other = d / "other.gguf"
    subprocess.run([MKMODEL, *SHAPE, "--seed", "1", str(other)], check=True, stdout=subprocess.DEVNULL)
    Origin.other = other.read_bytes()
    catalogue = d / "catalogue"
    catalogue.mkdir()
    for name, data in ("shared", Origin.data), ("other", Origin.other):
        (catalogue / f"{name}.yaml").write_text(
            f"id: {name}\ntitle: A file\nlicence: none\narch: llama\nquant: F16\nparams: 1\ncontext: 512\nfile: {name}.gguf\n"
            f"size: {len(data)}\nsha256: {hashlib.sha256(data).hexdigest()}\n"
            f"sources:\n  - url: http://127.0.0.1:{server.server_port}/{name}.gguf\n")
    yield catalogue
    server.shutdown()


def ask(node):
    status, r = node.request("/v1/chat/completions", {"model": "shared", "max_tokens": 8, "temperature": 0,
                                                      "messages": [{"role": "user", "content": "a b c"}]}, timeout=120)
    assert status == 200, r
    return r["choices"][0]["message"]["content"]


def on_disk(folder):
    """Bytes that the folder's files take on the disk: holes don't count."""
    return sum(f.stat().st_blocks * 512 for f in pathlib.Path(folder).iterdir())


@pytest.mark.parametrize("sharding", ["Pipeline", "Tensor"])
def test_each_node_fetches_its_shard_and_one_copy_leaves_the_origin(origin, tmp_path, sharding):
    nodes, folders = [], []
    Origin.sent = 0
    try:
        for i in range(3):
            folders.append(tmp_path / f"models{i}")
            env = {"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(folders[i]), "SKEIN_MODELS_DIRS": ""}
            nodes.append(Node(name=f"n{i}", peers=nodes[:1], env=env))
        for n in nodes:
            n.wait_up().wait_nodes(3)
        size = len(Origin.data)
        status, r = nodes[0].request("/place_instance", {"model_id": "shared", "min_nodes": 3, "sharding": sharding}, timeout=120)
        assert status == 200, r
        nodes[0].wait(lambda n: any(i["status"] == "ready" for i in n.state()["instances"].values()), 120, "ready instance")
        held = [on_disk(f) for f in folders]
        print("origin sent", Origin.sent / size, "on disk", [h / size for h in held])
        assert Origin.sent < 1.3 * size
        if sharding == "Pipeline":  # matrices of this size lie within a chunk: their slices can't show
            assert min(held) < 0.7 * size
        first = ask(nodes[0])
        # one node alone needs the rest: it comes from the others
        sent = Origin.sent
        instance = next(iter(nodes[0].state()["instances"]))
        assert nodes[0].request(f"/instance/{instance}", method="DELETE")[0] == 200
        nodes[0].wait(lambda n: not n.state()["instances"], 30, "end of the instance")
        status, r = nodes[1].request("/place_instance", {"model_id": "shared", "min_nodes": 1, "sharding": "Pipeline"}, timeout=120)
        assert status == 200, r
        nodes[1].wait(lambda n: any(i["status"] == "ready" for i in n.state()["instances"].values()), 120, "ready instance")
        assert ask(nodes[1]) == first
        assert Origin.sent - sent < 0.1 * size
    finally:
        for n in nodes:
            n.stop()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root to mount a small file system")
def test_a_small_disk_is_enough_for_a_shard(origin, tmp_path):
    """A node needs room for its layers, not for the model; one that lacks even that says how much it needs."""
    size, nodes, disk = len(Origin.data), [], tmp_path / "models1"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size * 6 // 10}", "tmpfs", str(disk)]).returncode:
        pytest.skip("can't mount a tmpfs here")
    try:
        for i in range(2):
            env = {"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(tmp_path / f"models{i}"), "SKEIN_MODELS_DIRS": ""}
            nodes.append(Node(name=f"n{i}", peers=nodes[:1], env=env))
        for n in nodes:
            n.wait_up().wait_nodes(2)
        status, r = nodes[0].request("/place_instance", {"model_id": "shared", "layers": "n0=0-6,n1=7-7"}, timeout=120)
        assert status == 200, r
        nodes[0].wait(lambda n: any(i["status"] == "ready" for i in n.state()["instances"].values()), 120, "ready instance")
        assert len({s["node"] for s in nodes[0].state()["instances"][r["instance_id"]]["shards"]}) == 2, nodes[1].output()
        assert ask(nodes[1])
        nodes[0].request(f"/instance/{r['instance_id']}", method="DELETE")
        status, r = nodes[0].request("/place_instance", {"model_id": "shared", "layers": "n1=0-7"}, timeout=120)
        assert status == 200, r
        said = nodes[1].wait(lambda n: re.search(r"fetching shared needs \S+ MiB in (\S+), but only", n.output()), 60, "word of it")
        assert said[1] == str(disk), said[0]
    finally:
        for n in nodes:
            n.stop()
        subprocess.run(["umount", "-l", str(disk)])


def test_a_launch_is_answered_while_another_model_is_fetched(origin, tmp_path):
    node = Node(env={"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(tmp_path), "SKEIN_MODELS_DIRS": ""}).wait_up()
    try:
        Origin.pause_s = 0.2
        status, r = node.request("/place_instance", {"model_id": "shared"}, timeout=120)
        assert status == 200, r
        Origin.pause_s = 3
        node.wait(lambda n: [i["status"] for i in n.state()["instances"].values()] == ["downloading"], what="download")
        status, r = node.request("/place_instance", {"model_id": "other"}, timeout=120)
        assert status == 200, r
        states = {i["model"]: i["status"] for i in node.state()["instances"].values()}
        assert states["shared"] == "downloading" and "other" in states, states
        Origin.pause_s = 0
        node.wait(lambda n: [i["status"] for i in n.state()["instances"].values()] == ["ready"] * 2, 120, "both ready")
    finally:
        Origin.pause_s = 0
        node.stop()


def test_a_download_that_nobody_wants_stops(origin, tmp_path):
    """The last instance that waits for a file goes: its download ends, and goes on from there when the file is wanted again."""
    node = Node(env={"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(tmp_path), "SKEIN_MODELS_DIRS": ""}).wait_up()

    def download():
        return next((d for v in node.state()["downloads"].values() for d in v), {})

    def launch():
        status, r = node.request("/place_instance", {"model_id": "shared"}, timeout=120)
        assert status == 200, r
        return r["instance_id"]

    try:
        Origin.pause_s = 0.2
        first = launch()
        Origin.pause_s = 1  # the file's head is here: the second answer waits for nothing
        second = launch()
        node.wait(lambda n: [i["status"] for i in n.state()["instances"].values()] == ["downloading"] * 2, what="download")
        assert node.request(f"/instance/{first}", method="DELETE")[0] == 200
        node.wait(lambda n: list(n.state()["instances"]) == [second], what="end of the first")
        time.sleep(1)
        assert "DownloadOngoing" in download() and "download stopped" not in node.output()
        assert node.request(f"/instance/{second}", method="DELETE")[0] == 200
        node.wait(lambda n: "DownloadPending" in download(), 60, "stopped download")
        pending = download()["DownloadPending"]
        assert pending["total"]["inBytes"] > 0 and "errorMessage" not in pending
        assert "download stopped model=shared" in node.output() and " error " not in node.output()
        assert (tmp_path / "shared.gguf.part").exists()
        for _ in range(3):  # deleted and wanted again at once
            i = launch()
            assert node.request(f"/instance/{i}", method="DELETE")[0] == 200
        launch()
        Origin.pause_s = 0
        node.wait(lambda n: [i["status"] for i in n.state()["instances"].values()] == ["ready"], 120, "ready instance")
        assert " error " not in node.output()
    finally:
        Origin.pause_s = 0
        node.stop()


def test_ctrl_c_ends_a_launch_that_waits_for_the_file(origin, tmp_path):
    node = Node(env={"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(tmp_path), "SKEIN_MODELS_DIRS": ""}).wait_up()
    Origin.pause_s = 1
    p = subprocess.Popen([SKEIN, "launch", "shared", "--port", str(node.port)], stderr=subprocess.PIPE, text=True)
    try:
        node.wait(lambda n: "download started" in n.output(), what="download")
        p.send_signal(signal.SIGINT)
        _, said = p.communicate(timeout=30)
        assert p.returncode == 1 and "stopped; the cluster goes on loading it" in said, said
    finally:
        Origin.pause_s = 0
        p.kill()
        p.wait()
        node.stop()


def test_a_folder_of_files_is_enough(origin, tmp_path):
    """No network, a file that was copied in: it runs."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "shared.gguf").write_bytes(Origin.data)
    sent = Origin.sent
    node = Node(env={"SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(models), "SKEIN_MODELS_DIRS": ""})
    try:
        node.wait_up()
        ask(node)
        assert Origin.sent == sent
        os.unlink(models / "shared.gguf")
    finally:
        node.stop()


def test_a_file_on_one_node_serves_the_cluster(origin, tmp_path):
    """A .gguf that somebody copied into one node's folder: the others find it by its name and copy what they compute with."""
    nodes, folders = [], [tmp_path / f"models{i}" for i in range(3)]
    folders[0].mkdir()
    (folders[0] / "own.gguf").write_bytes(Origin.other)
    Origin.sent = 0
    try:
        for i in range(3):
            env = {"SKEIN_OFFLINE": "0", "SKEIN_CATALOGUE": str(origin), "SKEIN_MODELS_DIR": str(folders[i]), "SKEIN_MODELS_DIRS": ""}
            nodes.append(Node(name=f"n{i}", peers=nodes[:1], env=env))
        for n in nodes:
            n.wait_up().wait_nodes(3)
        # asked by nodes that have never heard of it: to place it, and in a chat
        status, r = nodes[1].request("/place_instance", {"model_id": "own", "min_nodes": 3, "sharding": "Pipeline"}, timeout=120)
        assert status == 200, r
        nodes[1].wait(lambda n: any(i["status"] == "ready" for i in n.state()["instances"].values()), 120, "ready instance")
        instance, = nodes[1].state()["instances"].values()
        assert len(instance["shards"]) == 3 and instance["tries"] == 0, instance
        size = len(Origin.other)
        held = [on_disk(f) / size for f in folders[1:]]
        assert Origin.sent == 0 and 0 < min(held) < 0.8, held
        body = {"model": "own", "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "a b c"}]}
        status, r = nodes[2].request("/v1/chat/completions", body, timeout=120)
        assert status == 200, r
        said = r["choices"][0]["message"]["content"]
        assert nodes[2].request("/v1/chat/completions", body | {"model": "OWN"}, timeout=120)[0] == 200
        assert len(nodes[2].state()["instances"]) == 1
        nodes[2].request(f"/instance/{next(iter(nodes[2].state()['instances']))}", method="DELETE")
        for n in nodes:
            n.wait(lambda n: not n.state()["instances"], 30, "end of the instance")
        status, r = nodes[2].request("/v1/chat/completions", body, timeout=120)
        assert status == 200 and r["choices"][0]["message"]["content"] == said, r
        status, r = nodes[1].request("/v1/chat/completions", body | {"model": "nobody-has-this"})
        assert status == 404 and "nobody-has-this" in r["error"]["message"], r
    finally:
        for n in nodes:
            n.stop()
