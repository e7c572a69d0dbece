"""The machine, the node, the honest clients, and what is measured of them."""
import contextlib, multiprocessing, os, re, resource, shutil, signal, socket, struct, subprocess, sys, threading, time
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 8
# Nothing honest takes this long unless it fails.
PATIENCE = 10
# How much worse the slowest honest requests may be.
RATIO = 3.0
# Below this a p99 is the machine's own unrest.
FLOOR_MS = 20
SUCCESS = 0.98
# A node that takes more than this is ended, before it takes the machine.
TOO_MUCH_MIB = 2048
NODE, HONEST, STRANGER, DEAD = "10.66.0.1", "10.66.0.2", "10.66.0.66", "10.66.9.{}"


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


class Machine:
    """Addresses for the node, for honest clients and for strangers; addresses that never answer; a name server."""

    def __init__(self, binary, folder, seconds):
        self.binary, self.folder, self.seconds = binary, folder, seconds
        run("ip", "link", "set", "lo", "up")
        # The kernel's own limits, whatever this machine's are: larger buffers that nobody reads fill the memory that TCP has in all.
        for key, most in [("rmem", "4096 131072 6291456"), ("wmem", "4096 16384 4194304")]:
            Path(f"/proc/sys/net/ipv4/tcp_{key}").write_text(most)
        for address in (NODE, HONEST, STRANGER):
            run("ip", "address", "add", f"{address}/32", "dev", "lo")
        # What is sent there is answered by nobody, not even by ARP.
        run("ip", "link", "add", "void0", "type", "veth", "peer", "name", "void1")
        run("ip", "link", "set", "void0", "arp", "off", "up")
        run("ip", "link", "set", "void1", "up")
        run("ip", "address", "add", "10.66.9.254/24", "dev", "void0")
        for name, value in (("core/somaxconn", "4096"), ("ipv4/ip_local_port_range", "32768 65000"), ("ipv4/tcp_tw_reuse", "1")):
            Path(f"/proc/sys/net/{name}").write_text(value)
        (folder / "resolv.conf").write_text(f"nameserver {NODE}\n")
        (folder / "hosts").write_text("127.0.0.1 localhost\n")
        for file in ("resolv.conf", "hosts"):
            run("mount", "--bind", str(folder / file), f"/etc/{file}")
        spawn(name_server)
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self.echo, self.sink = Server(echo), Server(hold)

    def hashes(self, count):
        """Hashes of as many passwords, one for each honest user."""
        return [run(self.binary, "password", input=f"right{number}\n").strip() for number in range(count)]


def spawn(work, *args):
    """A process, so that it shares the machine and not the interpreter."""
    process = multiprocessing.get_context("fork").Process(target=work, args=args, daemon=True)
    process.start()
    return process


class Server:
    """A process that does `serve` with each connection to `port` of the node's address, on a thread of its own."""

    def __init__(self, serve, *args):
        self.listener = socket.create_server((NODE, 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.process = spawn(self.work, serve, args)

    def work(self, serve, args):
        threading.stack_size(256 << 10)
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=quietly, args=(serve, stream, *args), daemon=True).start()

    def stop(self):
        self.process.kill()
        self.listener.close()


def quietly(serve, *args):
    with contextlib.suppress(OSError):
        serve(*args)


def echo(stream):
    with stream:
        while piece := stream.recv(1 << 16):
            stream.sendall(piece)


def hold(stream):
    """The trivial server: takes what is sent, and says nothing, until the other leaves."""
    with stream:
        while stream.recv(1 << 16):
            pass


def name_server():
    """many.test has 16 addresses that never answer; nothing else has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((NODE, 53))
        while True:
            said, client = server.recvfrom(2000)
            end = said.index(0, 12) + 5
            is_a = said[end - 4:end - 2] == b"\0\1"
            known = said[12:end - 4].lower() == b"\4many\4test\0"
            ips = [socket.inet_aton(DEAD.format(number)) for number in range(1, 17)] if known and is_a else []
            records = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 600, 4) + ip for ip in ips)
            # Without an answer the authority says for how long that counts (RFC 2308).
            soa = b"" if ips else struct.pack(">BHHIH", 0, 6, 1, 60, 22) + b"\0\0" + struct.pack(">5I", 1, 1, 1, 1, 60)
            head = said[:2] + struct.pack(">HHHHH", 0x8580 if known else 0x8583, 1, len(ips), not ips, 0)
            server.sendto(head + said[12:end] + records + soa, client)


class Node:
    """An ekiden node, or one of a chain, or what else `serve` says; as nobody, so that it has no privileges."""

    def __init__(self, machine, name, config, files=4096, log=None, key=None, serve=("proxy",)):
        folder = machine.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "node.toml").write_text(config)
        line = folder / "line.key"
        line.write_text("5a" * 32)
        line.chmod(0o600)
        files_of_node = [machine.folder, folder, folder / "node.toml", line]
        if key:
            # A key file of its own.
            files_of_node.append(shutil.copy(key, folder / "node.key"))
        for path in files_of_node:
            os.chown(path, 65534, 65534)
        self.log = folder / "log"
        # `log` is where it goes instead of into a file.
        with open(self.log, "wb") as own:
            limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", machine.binary, *serve, "-c", folder / "node.toml"]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log or own, preexec_fn=limit, cwd=folder)
        # Where it listens, a line for each listener, and then that it is ready.
        if not any(line.startswith((b"ready", b"listening on")) for line in self.process.stdout):
            sys.exit(f"hostile: {name} does not start: {self.log.read_text()}")
        self.peak_mib = self.peak_files = 0
        self.died = self.ended = False
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self):
        status, files = f"/proc/{self.process.pid}/status", f"/proc/{self.process.pid}/fd"
        while not self.ended:
            with contextlib.suppress(OSError):
                # A process that has ended has none.
                found = re.search(r"VmRSS:\s+(\d+)", Path(status).read_text())
                rss = int(found[1]) / 1024 if found else 0
                self.peak_mib = max(self.peak_mib, rss)
                self.peak_files = max(self.peak_files, len(os.listdir(files)))
                if rss > TOO_MUCH_MIB:
                    self.process.kill()
            self.died |= self.process.poll() is not None and not self.ended
            time.sleep(0.05)

    def cpu(self):
        """Seconds so far."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def log_bytes(self):
        return self.log.stat().st_size

    def stop(self):
        self.ended = True
        self.watcher.join()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def receive(stream, count):
    data = b""
    while len(data) < count:
        piece = stream.recv(count - len(data))
        if not piece:
            raise ConnectionError("an end where an answer was due")
        data += piece
    return data


def dial(port, source=HONEST, timeout=PATIENCE):
    return socket.create_connection((NODE, port), timeout=timeout, source_address=(source, 0))


def socks(stream, host, port, user=None, password=None):
    """RFC 1928's client. Raises OSError if it is refused."""
    if user is None:
        stream.sendall(b"\5\1\0")
        receive(stream, 2)
    else:
        stream.sendall(b"\5\1\2")
        receive(stream, 2)
        stream.sendall(b"\1" + bytes([len(user)]) + user.encode() + bytes([len(password)]) + password.encode())
        if receive(stream, 2)[1] != 0:
            raise ConnectionError("the login is refused")
    stream.sendall(b"\5\1\0\3" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
    reply = receive(stream, 10)
    if reply[1] != 0:
        raise ConnectionError(f"reply {reply[1]}")


@dataclass
class Measured:
    """One run: what honest clients got, and what the node took for it."""

    waited_ms: list = field(default_factory=list)
    asked: int = 0
    # With those before the times count.
    lost: int = 0
    asked_ever: int = 0
    mib: float = 0
    files: int = 0
    log_kib: float = 0
    cpu_ms_each: float = 0
    died: bool = False
    # What the attack itself found.
    faults: list = field(default_factory=list)

    def percentile(self, percent):
        # What failed took for ever; its number stands apart, under lost.
        values = sorted(self.waited_ms) or [PATIENCE * 1000]
        return values[min(len(values) - 1, int(percent / 100 * len(values)))]

    def success(self):
        return len(self.waited_ms) / max(1, self.asked)


def ask_honestly(request, rate, seconds):
    """Begins `request(number)` at this rate, each on a thread of its own; milliseconds of those that succeed."""
    waited, threads, lock = [], [], threading.Lock()

    def one(number):
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            request(number)
            took = (time.monotonic() - begun) * 1e3
            with lock:
                waited.append(took)

    begun = time.monotonic()
    count = int(rate * seconds)
    for number in range(count):
        time.sleep(max(0, begun + number / rate - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(number,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE + 5)
    return waited[:], count


@dataclass
class Result:
    name: str
    beside: Measured
    under: Measured
    faults: list

    def ratio(self):
        return self.under.percentile(99) / max(FLOOR_MS, self.beside.percentile(99))


def measure(machine, attack):
    """Beside the trivial server, then at the node, each time at a fresh one."""
    name = attack.__name__.replace("_", "-")
    print(f"{name} …", file=sys.stderr, flush=True)
    runs = []
    for at_node in (False, True):
        scene = attack(machine)
        measured = Measured()
        strangers = []
        try:
            scene.begin(at_node)
            strangers = [spawn(quietly, *work) for work in scene.strangers(at_node)]
            time.sleep(scene.lead)
            cpu = sum(node.cpu() for node in scene.nodes)
            # What a node finds out at first counts in what is lost, and not in times.
            warm, asked_warm = ask_honestly(scene.honest, scene.rate, scene.warms)
            measured.waited_ms, measured.asked = ask_honestly(scene.honest, scene.rate, machine.seconds)
            measured.lost = asked_warm - len(warm) + measured.asked - len(measured.waited_ms)
            measured.asked_ever = asked_warm + measured.asked
            cpu = sum(node.cpu() for node in scene.nodes) - cpu
            # A node that is gone says nothing of what it took.
            measured.cpu_ms_each = max(0, cpu) * 1e3 / max(1, measured.asked_ever)
            measured.mib = max(node.peak_mib for node in scene.nodes)
            measured.files = max(node.peak_files for node in scene.nodes)
            measured.log_kib = sum(node.log_bytes() for node in scene.nodes) / 1024
            measured.died = any(node.died for node in scene.nodes)
            scene.after(measured)
        finally:
            for process in strangers:
                process.kill()
                process.join()
            for part in scene.nodes + scene.servers:
                part.stop()
        runs.append(measured)
    beside, under = runs
    result = Result(name, beside, under, under.faults)
    if under.died:
        result.faults.append("the node is gone")
    if beside.success() < SUCCESS:
        result.faults.append(f"{100 * beside.success():.0f} % of honest requests succeed beside the trivial server")
    if under.success() < SUCCESS * beside.success():
        result.faults.append(f"{100 * under.success():.0f} % of honest requests succeed")
    if result.ratio() > RATIO:
        result.faults.append(f"p99 is {result.ratio():.1f} times as long")
    scene.judge(result)
    return result


def report(results):
    columns = ["attack", "p50 ms", "p99 ms", "lost", "ratio of p99", "node MiB", "descriptors", "log KiB", "CPU ms each", ""]
    print("| " + " | ".join(columns) + " |\n|---" + "|---:" * (len(columns) - 2) + "|---|")
    for result in results:
        pair = lambda value, digits=0: f"{value(result.beside):.{digits}f} → {value(result.under):.{digits}f}"
        cells = [
            result.name,
            pair(lambda of: of.percentile(50), 1),
            pair(lambda of: of.percentile(99), 1),
            f"{result.beside.lost} → {result.under.lost} of {result.under.asked_ever}",
            f"{result.ratio():.2f}",
            pair(lambda of: of.mib),
            pair(lambda of: of.files),
            pair(lambda of: of.log_kib),
            pair(lambda of: of.cpu_ms_each, 1),
            "**missed**: " + "; ".join(result.faults) if result.faults else "reached",
        ]
        print("| " + " | ".join(cells) + " |")
    print(f"\nFrom the same attackers aimed at a trivial server → to attackers aimed at the node. Aims: p99 at most {RATIO:.0f} times as long "
          f"(less than {FLOOR_MS} ms count as {FLOOR_MS} ms), as many successes, a node that lives, and what each attack is about.")
