"""What is compared: direct connections of one or many streams, two ekiden nodes, and Hysteria 2. Each gives what a client connects to."""

import json
import socket
import subprocess
import time
from pathlib import Path

SOCKS = 1080


class Place:
    """The nodes of the lab, and the programs that run in them."""

    def __init__(self, asked):
        self.ekiden, self.peers, self.rate = asked["ekiden"], asked["peers"], asked["rate"]
        self.folder = Path(asked["folder"])
        self.running = []

    def start(self, node, *command):
        log = open(self.folder / f"{Path(command[0]).name}-{node}.log", "w")
        started = subprocess.Popen(["ip", "netns", "exec", node, *map(str, command)], cwd=self.folder, stdout=log, stderr=log)
        self.running.append(started)

    @staticmethod
    def address(node):
        return socket.gethostbyname(node)

    def stop(self):
        for one in self.running:
            one.terminate()
        for one in self.running:
            try:
                one.wait(5)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self.running.clear()

    def cpu_s(self):
        """What the programs have used so far. `ip netns exec` becomes the program."""
        fields = [Path(f"/proc/{one.pid}/stat").read_text().rsplit(")", 1)[1].split() for one in self.running]
        return sum(int(one[11]) + int(one[12]) for one in fields) / 100

    def keys(self):
        """The fingerprints of two keys, which are made once."""
        prints = {}
        for node in ("home", "away"):
            if not (self.folder / f"{node}.key").exists():
                made = subprocess.run([self.ekiden, "keygen", f"{node}.key"], cwd=self.folder, check=True, capture_output=True, text=True)
                (self.folder / f"{node}.print").write_text(made.stdout.strip())
            prints[node] = (self.folder / f"{node}.print").read_text()
        return prints


def legs(control):
    """Two nodes with a TLS leg. Without a control, as a user has them who names none."""

    def begin(place):
        prints = place.keys()
        tcp = f'[tcp]\ncongestion = "{control}"\n' if control else ""
        for node, rest in {
            "home": f'[listen.socks]\nkind = "socks5"\naddress = "0.0.0.0:{SOCKS}"\nopen = true\n'
            f'[peer.away]\naddress = "away:7000"\nfingerprint = "{prints["away"]}"\n[[route]]\nto = ["*"]\nvia = ["away"]\n',
            "away": f'[listen.leg]\nkind = "leg"\naddress = "0.0.0.0:7000"\nnodes = {{ home = "{prints["home"]}" }}\n[exit]\nallow = ["*"]\n',
        }.items():
            (place.folder / f"{node}.toml").write_text(f'name = "{node}"\nkey_file = "{node}.key"\n{tcp}{rest}')
            place.start(node, place.ekiden, "proxy", "-c", f"{node}.toml")

    return begin


def hysteria(is_told):
    """sing-box's Hysteria 2: with BBR, or with a rate that it is told (Brutal)."""

    def begin(place):
        files = {"certificate_path": str(place.folder / "hysteria.crt"), "key_path": str(place.folder / "hysteria.key")}
        certificate = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        names = ["-subj", "/CN=away", "-keyout", files["key_path"], "-out", files["certificate_path"]]
        subprocess.run([*certificate, *names], check=True, capture_output=True)
        rates = {"up_mbps": int(place.rate), "down_mbps": int(place.rate * 0.95)} if is_told else {}
        inbound = {"type": "hysteria2", "listen": "0.0.0.0", "listen_port": 7000, "users": [{"password": "bench"}], "tls": {"enabled": True, **files}}
        outbound = {"type": "hysteria2", "server": place.address("away"), "server_port": 7000, "password": "bench", **rates}
        outbound["tls"] = {"enabled": True, "insecure": True, "server_name": "away"}
        quiet = {"log": {"level": "error"}}
        ends = {
            "away": quiet | {"inbounds": [inbound], "outbounds": [{"type": "direct"}]},
            "home": quiet | {"inbounds": [{"type": "socks", "listen": "0.0.0.0", "listen_port": SOCKS}], "outbounds": [outbound]},
        }
        for node, end in ends.items():
            (place.folder / f"sing-{node}.json").write_text(json.dumps(end))
            place.start(node, Path(place.peers) / "sing-box", "run", "-c", f"sing-{node}.json")

    return begin


# How many streams, the congestion control of the server (the nodes' streams come over a short path), and how the proxies are begun.
WAYS = {
    "direct, CUBIC": (1, "cubic", None),
    "direct, BBR": (1, "bbr", None),
    "direct, 16 CUBIC": (16, "cubic", None),
    "direct, Reno": (1, "reno", None),
    "two nodes": (1, "cubic", legs("")),
    "two nodes, CUBIC": (1, "cubic", legs("cubic")),
    "two nodes, BBR": (1, "cubic", legs("bbr")),
    "two nodes, Reno": (1, "cubic", legs("reno")),
    "two nodes, BIC": (1, "cubic", legs("ekiden_bic")),
    "two nodes, gentle HSTCP": (1, "cubic", legs("ekiden_ghstcp")),
    "Hysteria 2, BBR": (1, "cubic", hysteria(False)),
    "Hysteria 2, Brutal": (1, "cubic", hysteria(True)),
}

# Programs listen within this.
PATIENCE_S = 10


def await_listener(address, port):
    """Waits until somebody listens there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
