"""The tunnels that are compared: how each is started between the two namespaces. Those over TCP have an inner MTU of 1500; those over UDP
what their packets leave of the 1500 bytes of the wire."""

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

LEFT, RIGHT = "left", "right"
WIRE = {LEFT: "192.0.2.1", RIGHT: "192.0.2.2"}
INNER = {LEFT: "10.77.0.1", RIGHT: "10.77.0.2"}


@dataclass
class Place:
    folder: Path
    programs: Path
    peers: Path
    running: list

    def run(self, namespace, *command, **options):
        """Starts a program whose log is in the folder."""
        log = open(self.folder / f"{len(self.running)}-{Path(command[0]).name}-{namespace}.log", "w")
        self.running.append(start(namespace, *command, stdout=log, stderr=log, cwd=self.folder, **options))

    def peer(self, program):
        return str(self.peers / program)

    def environment(self):
        libraries = [self.peers / part for part in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}


@dataclass
class Way:
    name: str
    names: list
    begin: Callable
    is_peer: bool = False
    is_secret: bool = False
    far: str = INNER[RIGHT]
    # Measured on the slow line too.
    is_common: bool = False
    # The program without which it cannot be measured, in the folder of peers.
    program: str = ""

    def missing(self, peers):
        return bool(self.program) and not (peers / self.program).exists()


def quiet(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30, **options)


def ip(namespace, *command):
    quiet("ip", "-n", namespace, *command)


def inside(namespace, *command, **options):
    return quiet("ip", "netns", "exec", namespace, *command, **options)


def start(namespace, *command, **options):
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    return subprocess.Popen(["ip", "netns", "exec", namespace, *map(str, command)], stdin=subprocess.DEVNULL, **options)


def await_that(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.1)


def await_answer(far):
    """Until the host there refuses a connection to a port that nobody listens on."""
    program = f"import errno, socket, sys; s = socket.socket(); s.settimeout(1); sys.exit(s.connect_ex(('{far}', 9)) != errno.ECONNREFUSED)"
    ask = ["ip", "netns", "exec", LEFT, "python3", "-c", program]
    await_that(f"an answer of {far}", lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0, 30)


def has_device(namespace, device):
    show = ["ip", "-n", namespace, "link", "show", device]
    return subprocess.run(show, capture_output=True, check=False).returncode == 0


def stop(running, names):
    """Ends the processes that this program has started, and those that these have made: all others are in other namespaces."""
    for process in running:
        process.terminate()
    deadline = time.monotonic() + 5
    while any(process.poll() is None for process in running) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            if file.read_text().strip() in names:
                os.kill(int(file.parent.name), signal.SIGKILL)
        except OSError:
            pass
    for namespace in (LEFT, RIGHT):
        subprocess.run(["ip", "-n", namespace, "link", "del", "tun0"], capture_output=True, check=False)
    time.sleep(0.5)


def up(namespace, device, mtu=1500):
    """Addresses for a device that its program does not set up itself."""
    far = LEFT if namespace == RIGHT else RIGHT
    ip(namespace, "address", "replace", INNER[namespace], "peer", INNER[far], "dev", device)
    ip(namespace, "link", "set", device, "mtu", str(mtu), "up")


def bare(_place):
    """No tunnel."""


def passthrough(place):
    place.running.append(subprocess.Popen([place.programs / "examples/passthrough", "bareleft", "bareright"],
                                          stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL))
    for namespace in (LEFT, RIGHT):
        await_that("the device", lambda: subprocess.run(["ip", "link", "show", f"bare{namespace}"], capture_output=True,
                                                        check=False).returncode == 0)
        quiet("ip", "link", "set", f"bare{namespace}", "netns", namespace)
        up(namespace, f"bare{namespace}")


def ekiden(place, security):
    program = place.programs / "ekiden"
    keys = {}
    if security == "plain":
        quiet(program, "keygen", "--shared", place.folder / "shared.key")
    else:
        for namespace in (LEFT, RIGHT):
            said = quiet(program, "keygen", place.folder / f"{namespace}.key").stdout
            keys[namespace] = "sha256:" + said.split("sha256:")[1].split()[0].strip('"')
    for namespace, far in ((RIGHT, LEFT), (LEFT, RIGHT)):
        shared = 'plain_key_file = "shared.key"\n'
        lines = [f'name = "{namespace}"']
        lines += [f'key_file = "{namespace}.key"'] if keys else []
        lines += ["[device]", f'addresses = ["{INNER[namespace]}/24"]', "mtu = 1500"]
        if namespace == RIGHT:
            lines += ["[listen]", 'address = "192.0.2.2:7100"', "" if keys else shared]
        lines += [f"[peer.{far}]", f'allowed = ["{INNER[far]}/32"]']
        lines += [f'fingerprint = "{keys[far]}"'] if keys else [shared]
        lines += ['address = "192.0.2.2:7100"'] if namespace == LEFT else []
        (place.folder / f"{namespace}.toml").write_text("\n".join(lines) + "\n")
        place.run(namespace, program, "tunnel", "-c", f"{namespace}.toml")


def openvpn(place, cipher, udp=False):
    common = ["--dev", "tun0", "--dev-type", "tun", "--tun-mtu", "1500", "--disable-dco", "--verb", "3",
              "--port", "1194", "--sndbuf", "0", "--rcvbuf", "0"]
    # Over UDP it lowers the MSS of what it carries by itself, so that its packets fit the wire.
    common += [] if udp else ["--mssfix", "0"]
    prints = {}
    if cipher:
        for namespace in (LEFT, RIGHT):
            quiet("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                  "-subj", f"/CN={namespace}", "-keyout", f"{namespace}.pem", "-out", f"{namespace}.crt", cwd=place.folder)
            said = quiet("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", f"{namespace}.crt", cwd=place.folder)
            prints[namespace] = said.stdout.strip().split("=")[1]
    for namespace, far in ((RIGHT, LEFT), (LEFT, RIGHT)):
        command = [place.peer("usr/sbin/openvpn"), *common, "--ifconfig", INNER[namespace], INNER[far]]
        command += ["--proto", "udp" if udp else "tcp-server" if namespace == RIGHT else "tcp-client"]
        command += ["--remote", WIRE[RIGHT], "1194"] if namespace == LEFT else []
        if cipher:
            command += ["--tls-server", "--dh", "none"] if namespace == RIGHT else ["--tls-client"]
            command += ["--cert", f"{namespace}.crt", "--key", f"{namespace}.pem", "--peer-fingerprint", prints[far]]
            command += ["--data-ciphers", cipher, "--cipher", cipher]
        else:
            command += ["--cipher", "none", "--auth", "none"]
        place.run(namespace, *command, env=place.environment())


def wireguard(place):
    """WireGuard in user space, with the MTU that its own tools set on a wire of 1500 bytes. It is told its keys over its socket."""
    keys = {}
    for namespace in (LEFT, RIGHT):
        private = subprocess.run(["openssl", "genpkey", "-algorithm", "X25519", "-outform", "DER"], check=True,
                                 capture_output=True, timeout=30).stdout
        public = subprocess.run(["openssl", "pkey", "-inform", "DER", "-pubout", "-outform", "DER"], input=private, check=True,
                                capture_output=True, timeout=30).stdout
        # The key is the end of both (RFC 8410).
        keys[namespace] = (private[-32:].hex(), public[-32:].hex())
    for namespace, far in ((RIGHT, LEFT), (LEFT, RIGHT)):
        device = f"wg-{namespace}"
        place.run(namespace, place.peer("wireguard/wireguard"), "-f", device)
        path = f"/var/run/wireguard/{device}.sock"
        await_that("WireGuard's socket", lambda: Path(path).exists())
        said = [f"private_key={keys[namespace][0]}", "listen_port=51820", f"public_key={keys[far][1]}",
                f"endpoint={WIRE[far]}:51820", f"allowed_ip={INNER[far]}/32"]
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(10)
            control.connect(path)
            control.sendall(("set=1\n" + "\n".join(said) + "\n\n").encode())
            answer = control.recv(1000).decode()
        if "errno=0" not in answer:
            raise RuntimeError(f"WireGuard does not take its configuration: {answer}")
        up(namespace, device, mtu=1420)


def vtun(place, encrypt):
    for namespace in (RIGHT, LEFT):
        # vtund gives up a device that is not up when it opens it.
        ip(namespace, "tuntap", "add", "dev", "tun0", "mode", "tun")
        up(namespace, "tun0")
        (place.folder / f"{namespace}.conf").write_text(
            f"options {{ port 5000; }}\npair {{ passwd secret; type tun; proto tcp; compress no; encrypt {encrypt}; "
            f"timeout 60; keepalive no; stat no; speed 0; device tun0; }}\n")
        command = [place.peer("usr/sbin/vtund"), "-n", "-f", f"{namespace}.conf"]
        command += ["-s"] if namespace == RIGHT else ["pair", WIRE[RIGHT]]
        place.run(namespace, *command, env=place.environment())
        time.sleep(0.5)


def ssh(place, cipher):
    for key in ("host", "user"):
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place.folder / key))
    shutil.copy(place.folder / "user.pub", place.folder / "authorized")
    # sshd wants a user of its own, and this folder.
    os.makedirs("/run/sshd", exist_ok=True)
    users = Path("/etc/passwd").read_text()
    if "sshd:" not in users:
        Path("/run/passwd").write_text(users + "sshd:x:74:74::/run/sshd:/bin/false\n")
        quiet("mount", "--bind", "/run/passwd", "/etc/passwd")
    (place.folder / "sshd.conf").write_text(
        f"Port 2222\nListenAddress {WIRE[RIGHT]}\nHostKey {place.folder}/host\nAuthorizedKeysFile {place.folder}/authorized\n"
        "PermitRootLogin yes\nPermitTunnel yes\nStrictModes no\nUsePAM no\nPidFile none\n")
    place.run(RIGHT, place.peer("usr/sbin/sshd"), "-D", "-e", "-f", f"{place.folder}/sshd.conf", env=place.environment())
    time.sleep(0.5)
    place.run(LEFT, "ssh", "-N", "-F", "none", "-i", f"{place.folder}/user", "-o", "StrictHostKeyChecking=no",
              "-o", f"UserKnownHostsFile={place.folder}/known", "-o", "Tunnel=point-to-point", "-o", "ExitOnForwardFailure=yes",
              "-o", "Compression=no", "-c", cipher, "-w", "0:0", "-p", "2222", f"root@{WIRE[RIGHT]}")
    for namespace in (LEFT, RIGHT):
        await_that("the device of ssh", lambda: has_device(namespace, "tun0"))
        up(namespace, "tun0")


def softether(place, encrypt):
    """The server bridges a hub to a TAP device; the client has a virtual adapter. Both are configured through vpncmd."""
    for program in ("vpnserver", "vpnclient", "vpncmd"):
        shutil.copytree(place.peer(f"usr/libexec/softether/{program}"), place.folder / program,
                        ignore=shutil.ignore_patterns("hamcore.se2"))
        shutil.copy(place.peer("usr/share/softether-common/hamcore.se2"), place.folder / program)
    shutil.rmtree("/var/lib/softether", ignore_errors=True)
    os.makedirs("/run/softether", exist_ok=True)

    def control(namespace, *command):
        inside(namespace, str(place.folder / "vpncmd/vpncmd"), *command, env=place.environment())

    place.run(RIGHT, place.folder / "vpnserver/vpnserver", "execsvc", env=place.environment())
    place.run(LEFT, place.folder / "vpnclient/vpnclient", "execsvc", env=place.environment())
    time.sleep(3)
    server = ["localhost:5555", "/SERVER", "/CMD"]
    control(RIGHT, *server, "HubCreate", "pair", "/PASSWORD:")
    control(RIGHT, *server, "BridgeCreate", "pair", "/DEVICE:pair", "/TAP:yes")
    control(RIGHT, "localhost:5555", "/SERVER", "/HUB:pair", "/CMD", "UserCreate", "left", "/GROUP:none", "/REALNAME:none", "/NOTE:none")
    control(RIGHT, "localhost:5555", "/SERVER", "/HUB:pair", "/CMD", "UserPasswordSet", "left", "/PASSWORD:secret")
    client = ["localhost", "/CLIENT", "/CMD"]
    control(LEFT, *client, "NicCreate", "vpn")
    control(LEFT, *client, "AccountCreate", "pair", f"/SERVER:{WIRE[RIGHT]}:5555", "/HUB:pair", "/USERNAME:left", "/NICNAME:vpn")
    control(LEFT, *client, "AccountPasswordSet", "pair", "/PASSWORD:secret", "/TYPE:standard")
    if not encrypt:
        control(LEFT, *client, "AccountEncryptDisable", "pair")
    control(LEFT, *client, "AccountConnect", "pair")
    for namespace, device in ((LEFT, "vpn_vpn"), (RIGHT, "tap_pair")):
        await_that(f"the device {device} of SoftEther", lambda: has_device(namespace, device))
        ip(namespace, "address", "add", f"{INNER[namespace]}/24", "dev", device)
        ip(namespace, "link", "set", device, "mtu", "1500", "up")


WAYS = [
    Way("no tunnel", [], bare, far=WIRE[RIGHT], is_common=True),
    Way("passthrough", ["passthrough"], passthrough),
    Way("ekiden", ["ekiden"], lambda place: ekiden(place, "plain"), is_common=True),
    Way("ekiden, TLS", ["ekiden"], lambda place: ekiden(place, "tls"), is_secret=True, is_common=True),
    Way("WireGuard (wireguard-go), UDP", ["wireguard"], wireguard, is_secret=True, is_common=True, program="wireguard/wireguard"),
    Way("OpenVPN, AES-256-GCM, UDP", ["openvpn"], lambda place: openvpn(place, "AES-256-GCM", udp=True), is_secret=True,
        is_common=True),
    Way("OpenVPN, no cipher", ["openvpn"], lambda place: openvpn(place, None), is_peer=True),
    Way("OpenVPN, AES-256-GCM", ["openvpn"], lambda place: openvpn(place, "AES-256-GCM"), is_peer=True, is_secret=True,
        is_common=True),
    Way("vtun, no cipher", ["vtund"], lambda place: vtun(place, "no"), is_peer=True),
    Way("vtun, AES-256-CBC", ["vtund"], lambda place: vtun(place, "aes256cbc"), is_peer=True, is_secret=True),
    Way("SoftEther, no cipher", ["vpnserver", "vpnclient"], lambda place: softether(place, False), is_peer=True),
    Way("SoftEther, TLS", ["vpnserver", "vpnclient"], lambda place: softether(place, True), is_peer=True, is_secret=True),
    Way("ssh -w, AES-256-GCM", ["ssh", "sshd"], lambda place: ssh(place, "aes256-gcm@openssh.com"), is_peer=True, is_secret=True),
]
