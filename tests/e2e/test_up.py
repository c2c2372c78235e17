"""Starting and stopping nodes as people do: in the background, from an inventory, found by themselves, from a copied disk."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import uuid

import harness
from harness import MKMODEL, MODEL, SKEIN, Node, free_port, models_dir


def skein(*args, env=None, timeout=60):
    e = dict(os.environ, SKEIN_OFFLINE="1", SKEIN_NO_DISCOVERY="1", SKEIN_NO_MEASURE="1", **(env or {}))
    r = subprocess.run([SKEIN, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=e, stdin=subprocess.DEVNULL)
    return r.returncode, r.stdout, r.stderr


def test_background(tmp_path):
    """Returns when the node serves; the PID file is the process; a second one on the folder fails; down stops it."""
    home, port, pid = tmp_path / "home", free_port(), tmp_path / "pid"
    key = tmp_path / "key"
    key.write_text("a secret\n")
    key.chmod(0o600)
    args = ("up", "--daemon", "--data-dir", home, "--port", port, "--bus-port", free_port(), "--name", "b", "--memory", 64)
    try:
        code, out, err = skein(*args, "--pid-file", pid, "--join-key-file", key)
        assert code == 0 and "closed by a join key" in out and "skein down stops" in out, (out, err)
        os.kill(int(pid.read_text()), 0)
        state = json.loads(skein("nodes", "--json", "-p", port)[1])
        assert [(n["name"], n["memory_available"]) for n in state] == [("b", 64 << 20)]
        assert (home / "node_key").stat().st_mode & 0o777 == 0o600
        code, out, err = skein(*args)
        assert code == 1 and f"(process {pid.read_text().strip()}) uses the data folder" in err, err
    finally:
        code, out, err = skein("down", "--data-dir", home)
    assert code == 0 and "stopped process" in out, err
    assert not pid.exists()
    code, out, err = skein("down", "--data-dir", home)
    assert code == 1 and "no node runs on the data folder" in err and "--data-dir" in err


def test_quiet(tmp_path):
    """-q: nothing is printed where nothing is wrong; the log file has the lines, those of runners too."""
    home = tmp_path / "home"
    if models_dir():
        n = Node("-q", "-m", MODEL).wait_up()
        n.wait(lambda x: [i for i in x.state()["instances"].values() if i["status"] == "ready"], 60, "the model")
        assert n.output() == "" and " runner: ready" in (pathlib.Path(n.home) / "skein.log").read_text(), n.output()
        n.stop()
    try:
        code, out, err = skein("up", "-q", "--daemon", "--data-dir", home, "--port", free_port(), "--bus-port", free_port())
        assert (code, out, err) == (0, "", ""), (out, err)
        assert "api: listening" in (home / "skein.log").read_text()
    finally:
        skein("down", "--data-dir", home)


def test_background_that_fails(tmp_path):
    """What goes wrong before it serves is told, and is the exit status."""
    busy = Node().wait_up()
    try:
        code, out, err = skein("up", "--daemon", "--data-dir", tmp_path / "h", "--port", busy.port, "--bus-port", free_port())
        assert code == 1 and str(busy.port) in err and "in use" in err, (code, out, err)
    finally:
        busy.stop()
    empty = tmp_path / "empty"
    empty.write_text("\n")
    code, out, err = skein("up", "--data-dir", tmp_path / "h", "--join-key-file", empty)
    assert code == 2 and "first line must hold the join key" in err
    code, out, err = skein("up", "--data-dir", tmp_path / "h", "--join-key-file", tmp_path / "none")
    assert code == 1 and "none" in err


def test_inventory(tmp_path):
    """cluster init joins what is there, and says what is missing or another machine than listed. As exo, too."""
    ns = "inv-" + uuid.uuid4().hex[:8]
    one = Node("--namespace", ns, name="one").wait_up()
    two = Node("--namespace", ns, name="two").wait_up()
    closed = free_port()
    inv = tmp_path / "inventory.yaml"
    inv.write_text(f"""
namespace: {ns}
nodes:
  - host: one
    address: {one.address}
    memory: 999 TB
  - {{host: two, address: "{two.address}", chip: Z80}}
  - {{host: three, address: "127.0.0.1:{closed}", color: red}}
""")
    exo = tmp_path / "exo"
    exo.symlink_to(SKEIN)
    three = None
    try:
        r = subprocess.run([exo, "cluster", "init", "--config", inv, "--port", str(one.port), "--timeout", "10"], capture_output=True, text=True,
                           timeout=60)
        assert r.returncode == 1 and "2 of 3 nodes are there" in r.stdout, r
        lines = {x.split()[0]: x for x in r.stdout.splitlines() if x}
        assert "live" in lines["one"] and "memory: listed 999" in lines["one"]
        assert "live" in lines["two"] and "chip: listed Z80" in lines["two"]
        assert "missing" in lines["three"] and "no node runs there" in lines["three"]
        assert "line 8: field color means nothing here" in r.stderr
        three = Node("--namespace", ns, "--inventory", str(inv), "--bus-port", str(closed), name="three")
        three.wait_nodes(3)
        code, out, err = skein("cluster", "init", "--config", inv, "--port", one.port)
        assert code == 0 and "3 of 3 nodes are there" in out, (out, err)
        inv.write_text("namespace: other\nnodes: [a]\n")
        code, out, err = skein("cluster", "init", "--config", inv, "--port", one.port)
        assert code == 2 and f"belongs to {ns}" in err, err
        inv.write_text("nodes:\n  - host: a\n    memory: lots\n")
        code, out, err = skein("cluster", "init", "--config", inv, "--port", one.port)
        assert code == 1 and 'line 3: memory "lots"' in err, err
    finally:
        for n in (one, two, three):
            if n:
                n.stop()


def test_found_by_themselves():
    """No peer is named; two namespaces on one network stay apart."""
    ns = "disc-" + uuid.uuid4().hex[:8]
    env = {"SKEIN_NO_DISCOVERY": "0"}
    a = Node("--namespace", ns, "--interface", "lo", name="a", env=env).wait_up()
    other = Node("--namespace", ns + "x", "--interface", "lo", name="other", env=env).wait_up()
    b = Node("--namespace", ns, "--interface", "lo", name="b", env=env).wait_up()
    try:
        if a.state()["discovery"]:
            import pytest

            pytest.skip(a.state()["discovery"])
        a.wait_nodes(2)
        b.wait_nodes(2)
        assert len(other.state()["nodes"]) == 1
    finally:
        for n in (a, b, other):
            n.stop()


def test_copied_disk():
    """Two nodes with one key: the later one becomes another node and joins, and says so."""
    ns = "copy-" + uuid.uuid4().hex[:8]
    a = Node("--namespace", ns, name="a").wait_up()
    b = Node("--namespace", ns, name="b").wait_up()
    home = pathlib.Path(b.home)
    try:
        b.p.terminate()
        b.p.wait(10)
        shutil.copy(pathlib.Path(a.home) / "node_key", home / "node_key")
        first = a.request("/node_id")[1]
        c = Node("--namespace", ns, "--data-dir", str(home), name="c", peers=[a])
        try:
            c.wait_nodes(2)
            a.wait_nodes(2)
            assert a.request("/node_id")[1] == first and c.request("/node_id")[1] != first
            assert f"copied key node={first}" in c.output() and "starting again under this id" in c.output()
        finally:
            c.stop()
    finally:
        a.stop()
        b.stop()


def test_a_program_that_was_replaced_still_starts_its_runners(tmp_path, monkeypatch):
    """As when a new version is installed while the node runs."""
    program = tmp_path / "skein"
    shutil.copy(SKEIN, program)
    models = tmp_path / "models"
    models.mkdir()
    subprocess.run([MKMODEL, "--ctx", "256", models / "tiny.gguf"], check=True)
    monkeypatch.setattr(harness, "SKEIN", str(program))
    n = Node(models=str(models)).wait_up()
    try:
        program.unlink()
        program.write_text("another version")
        status, r = n.request("/v1/chat/completions", {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]})
        assert status == 200, r
    finally:
        n.stop()


def test_a_name_is_one_line():
    """Control characters would write all over tables, terminals and logs."""
    n = Node(name="a\nb\x1b[31m\xff").wait_up()
    try:
        assert n.state()["name"] == "a?b?[31m\xff"
    finally:
        n.stop()


def test_stopped_forgotten_and_back():
    """Who was stopped is no broken node, can be taken off everybody's list, and is found again by whom it was given to."""
    a = Node(name="one").wait_up()
    b, c = (Node(name=x, peers=[a]).wait_up() for x in ("two", "three"))
    nodes = [a, b, c]
    try:
        for x in nodes:
            x.wait_nodes(3)
        first = a.state()["node_id"]

        def ask(*args):
            code, out, err = skein(*args, "--port", b.port)
            return code, out + err

        code, out = ask("nodes", "--forget", "three")
        assert code == 1 and "three is connected" in out, out
        code, out = ask("nodes", "--forget", "nobody")
        assert code == 1 and "there is no node nobody" in out, out
        a.p.terminate()
        a.p.wait()
        for x in (b, c):
            x.wait(lambda s: [m for m in s.state()["nodes"] if m.get("is_stopped")], what="the mark")
        b.wait(lambda s: s.state()["master"] not in ("", first), what="another master")
        assert re.search(rf"^one +{first[:6]}\w* +stopped ", ask("nodes")[1], re.M), ask("nodes")
        out = ask("doctor", "--listen", "0")[1]
        assert "note    stopped     one was stopped" in out and "BROKEN" not in out.replace("BROKEN  disk", ""), out
        code, out = ask("nodes", "--forget", first[:6])
        assert code == 0 and "is forgotten" in out, out
        for x in (b, c):
            x.wait(lambda s: len(s.state()["nodes"]) == 2, what="oblivion")
        for f in pathlib.Path(a.home).iterdir():  # it comes back with an empty disk and knows nobody
            if f.is_file() and f.name != "stderr.txt":
                f.unlink()
        a.start()
        for x in nodes:
            x.wait_up().wait_nodes(3)
        assert a.state()["node_id"] != first
    finally:
        for x in nodes:
            x.stop()
