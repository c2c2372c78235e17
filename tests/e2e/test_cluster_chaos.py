"""Random faults on four real nodes: SKEIN_FAULT_SECONDS (15) of them from SKEIN_FAULT_SEED (a fresh one).

Rounds of one to four faults at random times, then everything is cured: all nodes must agree within a minute, and what was wanted and
never deleted must be wanted and ready.
"""

import os
import random
import subprocess
import time

import pytest

import harness
import netlab
from test_cluster_netns import LONG, ready, settled, view

WHY = netlab.missing(linkem=True, nft=True)
SECONDS = float(os.environ.get("SKEIN_FAULT_SECONDS", "15"))
SEED = int(os.environ.get("SKEIN_FAULT_SEED") or time.time_ns() % 10**9)


class Chaos:
    def __init__(self, nodes, seed):
        self.nodes, self.random, self.wanted, self.done = nodes, random.Random(seed), set(), []

    def kill(self, n):
        n.kill()

    def restart(self, n):
        n.kill()
        time.sleep(self.random.random())
        n.start()

    def stop(self, n):
        n.p.send_signal(netlab.signal.SIGSTOP)

    def cut_off(self, n):
        n.machine.nft("input iif != lo drop; output oif != lo drop")

    def pull_plug(self, n):
        n.cable.pull()

    def spoil(self, n):
        r = self.random.randint
        n.cable.set(f"both delay={r(0, 100)}ms jitter={r(0, 50)}ms loss={r(0, 20)} reorder={r(0, 10)} dup={r(0, 5)}")

    def split(self, _):
        half = self.random.sample(self.nodes, len(self.nodes) // 2)
        for n in self.nodes:
            far = [x.host for x in self.nodes if (x in half) != (n in half)]
            n.machine.nft("; ".join(f"input ip saddr {x} drop" for x in far))

    def place(self, n):
        if len(self.wanted) < 3:
            status, r = n.request("/place_instance", {"model_id": "tiny", "min_nodes": self.random.randint(1, 2)}, timeout=20)
            if status == 200:
                self.wanted.add(r["instance_id"])

    def delete(self, n):
        if self.wanted:
            i = self.random.choice(sorted(self.wanted))
            self.wanted.discard(i)  # whether it arrives or not: nothing is claimed of it any more
            n.request(f"/instance/{i}", method="DELETE", timeout=20)

    def round(self):
        faults = [self.kill, self.restart, self.stop, self.cut_off, self.pull_plug, self.spoil, self.split, self.place, self.delete]
        for _ in range(self.random.randint(1, 4)):
            fault, n = self.random.choice(faults), self.random.choice(self.nodes)
            self.done.append(f"{fault.__name__} {n.name}")
            try:
                fault(n)
            except OSError:
                pass  # a node that is down or stopped answers nobody
            time.sleep(self.random.random() * 3)
        self.done.append("|")

    def cure(self):
        for n in self.nodes:
            n.machine.nft("")
            n.cable.set("both reset")
            n.p.send_signal(netlab.signal.SIGCONT)
            if n.p.poll() is not None:
                n.start()
        for n in self.nodes:
            n.wait_up()

    def check(self):
        """What an unanswered place or delete led to is everybody's guess, but they must agree on it."""
        ids = sorted(n.known_id for n in self.nodes)
        for n in self.nodes:
            n.wait(lambda n: view(n)[1] == ids, LONG, f"all nodes at {n.name}")
        self.nodes[0].wait(lambda _: len({str(view(n)) for n in self.nodes}) == 1, LONG, "agreement")
        for n in self.nodes:
            n.wait(lambda n: self.wanted <= set(n.state()["instances"]) and all(ready(n, i) for i in n.state()["instances"]),
                   LONG, f"{self.wanted} ready at {n.name}")
        settled(self.nodes, set(self.nodes[0].state()["instances"]), ids)


@pytest.mark.skipif(bool(WHY), reason=str(WHY))
def test_any_faults(tmp_path):
    subprocess.run([harness.MKMODEL, "--ctx", "256", str(tmp_path / "tiny.gguf")], check=True)
    with netlab.Lab() as lab:
        switch, nodes = lab.switch(), []
        for i, name in enumerate("abcd"):
            m = lab.machine(name, ipv6=False)
            cable = m.plug(switch, f"10.9.0.{i + 1}/24", link="")
            nodes.append(m.node("--node-timeout", "2000", models=str(tmp_path)))
            nodes[-1].cable, nodes[-1].host = cable, f"10.9.0.{i + 1}"
        for n in nodes:
            n.wait_up()
            n.known_id = n.id()
        settled(nodes)
        chaos = Chaos(nodes, SEED)
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                chaos.round()
                chaos.cure()
                chaos.check()
        except AssertionError as e:
            raise AssertionError(f"SKEIN_FAULT_SEED={SEED}: {' '.join(chaos.done)}\n{e}") from e
