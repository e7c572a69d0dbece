"""The paths that are measured. Rates in Mbit/s, round trips in ms, queues in bandwidth-delay products; `line` is what the scenario says of
the line besides. `carries` is what is left of the rate after its losses, as user data of full segments."""

from dataclasses import dataclass

PAYLOAD = 1448 / 1500  # Ethernet's header is not counted by the line


@dataclass
class Path:
    name: str
    rate: float = 100
    rtt: float = 80
    queue: float = 0.5
    loss: float = 0
    line: str = ""
    # The congestion control of a direct download that begins before and is there meanwhile.
    beside: str = ""
    # What passes, where it is policed.
    mean: float = 0

    @property
    def carries(self):
        return (self.mean or self.rate) * PAYLOAD * (1 - self.loss)

    def scenario(self):
        """Two hosts, each behind a node that forwards their packets and on which proxies can be started."""
        size = max(int(self.queue * self.rate * 1e6 / 8 * self.rtt / 1e3), 3000)
        lossy = f'loss = "{self.loss:.3%}"\n' if self.loss else ""
        return f"""name = "far"
seed = 1
[tcp]
congestion = "cubic"
send_buffer = "64MiB"
receive_buffer = "64MiB"
[node.client]
[node.home]
kind = "router"
[node.away]
kind = "router"
[node.server]
[link.lan]
ends = ["client", "home"]
rate = "1Gbit/s"
[link.line]
ends = ["home", "away"]
rate = "{self.rate}Mbit/s"
delay = "{self.rtt / 2}ms"
queue = "{size}B"
{lossy}{self.line}
[link.rack]
ends = ["away", "server"]
rate = "1Gbit/s"
"""


PATHS = [
    Path("no loss"),
    Path("0.1 % lost", loss=0.001),
    Path("1 % lost", loss=0.01),
    Path("0.1 % lost, 200 ms", rtt=200, loss=0.001),
    Path("1 % lost, 200 ms", rtt=200, loss=0.01),
    Path("2 % lost, 200 ms, 1 BDP", rtt=200, queue=1, loss=0.02),
    Path("2 % lost in runs of 8, 200 ms", rtt=200, loss=0.02, line="loss_burst = 8"),
    Path("1 % lost, 20 ms, 0.1 BDP", rtt=20, queue=0.1, loss=0.01),
    Path("0.1 % lost, 600 ms, 20 Mbit/s", rate=20, rtt=600, queue=1, loss=0.001),
    Path("1 % lost, 5 Mbit/s, 4 BDP", rate=5, queue=4, loss=0.01),
    Path("jitter of 20 ms", line='jitter = "20ms"'),
    Path("a policer of 50 Mbit/s, 200 ms", rtt=200, mean=50, line='back.policer.rate = "50Mbit/s"\nback.policer.burst = "200KB"'),
    Path("a way back of 2 Mbit/s", line='forth.rate = "2Mbit/s"\nforth.queue = "50KB"'),
    Path("beside Reno", beside="reno"),
    Path("beside Reno, 1 BDP", queue=1, beside="reno"),
    Path("beside CUBIC, 1 BDP", queue=1, beside="cubic"),
    Path("beside Reno, 0.01 % lost", loss=0.0001, beside="reno"),
]
