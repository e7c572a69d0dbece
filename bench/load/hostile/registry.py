"""A member of an overlay that harms the others by what it writes into etcd."""
import base64, contextlib, http.client, json, os, re, subprocess, time

from attacks import EXIT, LEGS, MOST_LOG_KIB_PER_SECOND, SOCKS, Scene
from bench import NODE, dial, run, socks

USED, UNUSED = 2379, 2389
NODE_TEXT = """name = "{name}"
key_file = "own.key"
[listen.leg]
kind = "leg"
address = "{address}"
[overlay.etcd]
endpoints = ["http://127.0.0.1:{etcd}"]
overlay = "blue"
lease = "5s"
address = "{address}"
[exit]
allow = ["*"]
"""
ENTRY_TEXT = f"""[listen.socks]
kind = "socks5"
address = "{NODE}:{SOCKS}"
open = true
[[route]]
to = ["*"]
via = "auto"
"""


class Etcd:
    """As docs/guide/overlay.md starts it, on loopback."""

    def __init__(self, machine, port):
        url, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        self.folder = machine.folder / f"etcd{port}-{time.monotonic_ns()}"
        command = [
            "etcd", "--data-dir", self.folder, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
            "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}", "--max-request-bytes", "65536",
            "--quota-backend-bytes", "2147483648", "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1m",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with contextlib.suppress(OSError):
                return self.check(port)
            time.sleep(0.1)
        raise SystemExit("hostile: etcd does not start (scripts/setup test installs it)")

    @staticmethod
    def check(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/health")
        connection.getresponse().read()

    def stop(self):
        self.process.kill()
        self.process.wait()


def write_without_end(port, fingerprint):
    """Records that are right, with an address that is another each time; that claim all destinations; and that are large."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    encode = lambda text: base64.b64encode(text.encode()).decode()

    def call(path, request):
        connection.request("POST", f"/v3/{path}", json.dumps(request))
        return json.loads(connection.getresponse().read())

    lease = call("lease/grant", {"TTL": "3600"})["ID"]
    number = 0
    while True:
        number += 1
        record = {"member_format": 2, "instance": "aa", "address": f"{NODE}:{1024 + number % 60000}", "fingerprint": fingerprint, "load": 0}
        if number % 4 == 0:
            record["near"] = [f"{NODE}/32"]
        if number % 4 == 1:
            record["instance"] = "a" * 40000
        call("kv/put", {"key": encode("/ekiden/blue/nodes/liar"), "value": encode(json.dumps(record)), "lease": lease})


class flooding_member(Scene):
    """A member writes its own record into etcd, as fast as one script can; honest clients go over the overlay."""

    lead = 6.0

    def begin(self, at_node):
        self.servers += [Etcd(self.machine, port) for port in (USED, UNUSED)]
        for port in (USED, UNUSED):
            self.operate(port, "init", "blue")
        self.fingerprint = self.key("liar")
        for port in (USED, UNUSED):
            self.operate(port, "admit", "blue", "liar", self.fingerprint)
        for name, address, more, said in (
            ("node0", f"{NODE}:{LEGS}", ENTRY_TEXT, []),
            ("node1", f"{NODE}:{EXIT}", "", ["--near", "10.66.0.0/16"]),
        ):
            self.operate(USED, "admit", "blue", name, self.key(name), *said)
            text = NODE_TEXT.format(name=name, address=address, etcd=USED)
            # Tables follow the keys of the file.
            self.node(text + more)
        self.at_node = at_node
        for _ in range(100):
            with contextlib.suppress(OSError), dial(SOCKS) as stream:
                return socks(stream, NODE, self.machine.echo.port)
            time.sleep(0.1)

    def key(self, name):
        folder = self.machine.folder / name
        folder.mkdir(exist_ok=True)
        file = folder / "own.key"
        file.unlink(missing_ok=True)
        said = run(self.machine.binary, "keygen", file)
        os.chown(file, 65534, 65534)
        return re.search(r"sha256:[0-9a-f]{64}", said)[0]

    def operate(self, port, verb, *args):
        run(self.machine.binary, "overlay", verb, *args, "--etcd", f"http://127.0.0.1:{port}")

    def strangers(self, at_node):
        return [(write_without_end, USED if at_node else UNUSED, self.fingerprint)]

    def after(self, measured):
        if measured.log_kib / (self.machine.seconds + self.lead) > MOST_LOG_KIB_PER_SECOND:
            measured.faults.append(f"the nodes' logs have {measured.log_kib:.0f} KiB")


ALL = [flooding_member]
