"""How probable it is that samples differ by chance alone."""

import math


def smirnov(one, other):
    """How probable a distance as great as this between the distributions of two samples is, if they are of one distribution (Kolmogorov and
    Smirnov): of all orders in which values of both can come, the part that have it somewhere."""
    sizes = len(one), len(other)

    def reached(values, limit):
        return sum(value <= limit for value in values)

    # Distances are counted in parts of sizes[0] * sizes[1].
    seen = max(abs(reached(one, limit) * sizes[1] - reached(other, limit) * sizes[0]) for limit in [*one, *other])
    # orders[j]: in how many orders i values of one and j of the other have come first, and none had this distance.
    orders = [int(j * sizes[0] < seen) for j in range(sizes[1] + 1)]
    orders = [int(all(orders[: j + 1])) for j in range(sizes[1] + 1)]
    for i in range(1, sizes[0] + 1):
        for j in range(sizes[1] + 1):
            before = orders[j - 1] if j else 0
            orders[j] = orders[j] + before if abs(i * sizes[1] - j * sizes[0]) < seen else 0
    return 1 - orders[-1] / math.comb(sum(sizes), sizes[0])


def holm(chances):
    """The chances of several tests, each as if it were the only one: below 0.05 where one in twenty such families of tests has any
    that is, if there are no differences (Holm, 1979)."""
    adjusted, most = [0.0] * len(chances), 0.0
    for rank, at in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        most = max(most, min(1.0, (len(chances) - rank) * chances[at]))
        adjusted[at] = most
    return adjusted
