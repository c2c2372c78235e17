"""Real node processes for the end-to-end tests: each in its own data folder, on free ports of loopback."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SKEIN_BUILD", ROOT / "build"))
SKEIN = str((ROOT / BUILD / "skein").resolve())
MKMODEL = str((ROOT / BUILD / "mkmodel").resolve())
MODEL = "smollm2-135m-instruct"


def models_dir():
    """Where the downloaded test models lie (make test fetches them), or None."""
    d = os.environ.get("SKEIN_TEST_MODELS")
    if d is None:
        out = subprocess.run([SKEIN, "models", "--json"], capture_output=True, text=True)
        for m in json.loads(out.stdout or "[]") if out.returncode == 0 else []:
            if m.get("id") == MODEL and m.get("path"):
                d = os.path.dirname(m["path"])
    return d if d and list(pathlib.Path(d).glob("SmolLM2*.gguf")) else None


given_ports = set()


def free_port():
    """Below the ports that systems give to outgoing connections, any of which could take it meanwhile."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in given_ports:
            given_ports.add(port)
            return port


class Node:
    def __init__(self, *args, peers=(), name=None, env=None, port=None, models=None):
        self.home = tempfile.mkdtemp(prefix="skein-e2e-")
        self.port = port or free_port()
        self.bus = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        cmd = [SKEIN, "up", "--port", str(self.port), "--bus-port", str(self.bus), "--data-dir", self.home]
        for p in peers:
            cmd += ["--peer", p.address if isinstance(p, Node) else p]
        if name:
            cmd += ["--name", name]
        e = dict(os.environ, SKEIN_OFFLINE="1", SKEIN_NO_MEASURE="1", SKEIN_NO_DISCOVERY="1", HOME=self.home)
        e.pop("SKEIN_HOME", None)
        d = models or models_dir()
        if d:
            e["SKEIN_MODELS_DIRS"] = d
        e.update(env or {})
        self.log = open(os.path.join(self.home, "stderr.txt"), "a+")
        self.cmd, self.env = cmd + list(args), e
        self.start()

    def start(self):
        """Again from the same folder, after kill()."""
        self.p = subprocess.Popen(self.cmd, stdout=self.log, stderr=self.log, env=self.env)
        return self

    def kill(self):
        self.p.kill()
        self.p.wait()

    @property
    def address(self):
        return f"127.0.0.1:{self.bus}"

    def output(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def request(self, path, body=None, method=None, timeout=60):
        """(status, parsed or raw body)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        r = urllib.request.Request(self.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(r, timeout=timeout) as f:
                status, text = f.status, f.read()
        except urllib.error.HTTPError as e:
            status, text = e.code, e.read()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode(errors="replace")

    def state(self):
        return self.request("/state")[1]

    def wait(self, condition, seconds=60, what="the condition"):
        end = time.time() + seconds
        last = None
        while time.time() < end:
            if self.p.poll() is not None:
                raise AssertionError(f"node ended with {self.p.returncode}:\n{self.output()}")
            try:
                last = condition(self)
                if last:
                    return last
            except (OSError, KeyError, ValueError, TypeError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"no {what} within {seconds} s; state {json.dumps(self.state())[:3000]}\n{self.output()[-3000:]}")

    def wait_up(self):
        self.wait(lambda n: n.request("/node_id")[0] == 200, 60, "answer of the API")
        return self

    def wait_nodes(self, n):
        self.wait(lambda s: len([x for x in s.state()["nodes"] if x["state"] in ("self", "live")]) == n, 60, f"cluster of {n}")
        return self

    def stop(self, sig=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(sig)
            try:
                self.p.wait(30)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
                raise AssertionError("the node did not end within 30 s of the signal")
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)


def cluster(n, *args, **kw):
    first = Node(*args, name="node1", **kw)
    nodes = [first] + [Node(*args, peers=[first], name=f"node{i + 1}", **kw) for i in range(1, n)]
    for x in nodes:
        x.wait_up()
    for x in nodes:
        x.wait_nodes(n)
    return nodes


def chat(node, text, **kw):
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 48} | kw
    status, r = node.request("/v1/chat/completions", body, timeout=180)
    assert status == 200, r
    return r["choices"][0]["message"]["content"]


def runner_pids(node):
    out = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(node.p.pid)], capture_output=True, text=True).stdout
    return [int(m.group(1)) for m in re.finditer(r"^\s*(\d+) .*\brunner\b", out, re.M)]
