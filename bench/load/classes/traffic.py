"""The server and the client of bench/load/classes/run. The server sends without end on port 9000, answers each byte with 2000 on 9001, and on
9002 sends as many bytes as a line asks for, and ends. traffic.py serve | shares | alone | beside | files SIZES LOAD SEED. The client's last
line is its result, as JSON."""
import asyncio, json, math, random, sys, time

LEG_BYTES_S, MEAN_BYTES, SECONDS = 20e6 / 8, 500_000, 40


async def serve():
    async def flood(reader, writer):
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    async def answer(reader, writer):
        while await reader.read(1):
            writer.write(bytes(2000))

    async def file(reader, writer):
        left = int(await reader.readline())
        while left:
            writer.write(bytes(min(left, 65536)))
            left -= min(left, 65536)
            await writer.drain()
        writer.close()

    def guarded(of):
        async def serve_one(reader, writer):
            try:
                await of(reader, writer)
            except (OSError, ValueError):
                pass
        return serve_one

    servers = [await asyncio.start_server(guarded(of), "", port, backlog=1000) for port, of in ((9000, flood), (9001, answer), (9002, file))]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def pull(name, port, got):
    reader, writer = await asyncio.open_connection("a", port)
    while piece := await reader.read(65536):
        got[name] = got.get(name, 0) + len(piece)
    sys.exit(f"a stream of {name} ended")


async def shares():
    got = {}
    tasks = [asyncio.create_task(pull("eight", 9002, got)) for _ in range(8)]
    await asyncio.sleep(2)
    tasks.append(asyncio.create_task(pull("one", 9001, got)))
    await asyncio.sleep(10)
    before = dict(got)
    await asyncio.sleep(20)
    one, eight = (got[name] - before[name] for name in ("one", "eight"))
    return {"part": one / (one + eight), "rate": (one + eight) * 8 / 20}


async def answers(is_alone):
    got = {"eight": 0}
    reader, writer = await asyncio.open_connection("a", 9003)
    tasks = [] if is_alone else [asyncio.create_task(pull("eight", 9002, got)) for _ in range(8)]
    await asyncio.sleep(1 if is_alone else 8)
    times, begun, before = [], time.monotonic(), got["eight"]
    for _ in range(300):
        at = time.monotonic()
        writer.write(b"?")
        await reader.readexactly(2000)
        times.append((time.monotonic() - at) * 1e3)
        await asyncio.sleep(0.05)
    times.sort()
    rate = (got["eight"] - before) * 8e-6 / (time.monotonic() - begun)
    return {"median": times[150], "p99": times[297], "rate": rate}


async def files(sizes, load, seed):
    draw = random.Random(f"{sizes} {load} {seed}")
    mean = math.log(MEAN_BYTES) - 1.5 ** 2 / 2
    size = {"alike": lambda: MEAN_BYTES, "uneven": lambda: int(draw.lognormvariate(mean, 1.5)) + 1}[sizes]
    # Files begin at random, whether or not those before have arrived; their bytes are just what the load says.
    wanted, all_sizes = load * LEG_BYTES_S * SECONDS, []
    while sum(all_sizes) < wanted:
        all_sizes.append(size())
    starts = sorted(draw.uniform(0, SECONDS) for _ in all_sizes)
    begun, times = time.monotonic(), []

    async def fetch(at, wanted):
        await asyncio.sleep(at)
        start = time.monotonic()
        reader, writer = await asyncio.open_connection("a", 9004)
        writer.write(b"%d\n" % wanted)
        got = 0
        while piece := await reader.read(65536):
            got += len(piece)
        writer.close()
        if got != wanted:
            sys.exit(f"{got} of {wanted} bytes")
        times.append(time.monotonic() - start)

    await asyncio.gather(*(fetch(at, wanted) for at, wanted in zip(starts, all_sizes)))
    return {"files": len(times), "mean": sum(times) / len(times), "last": time.monotonic() - begun}


async def main(task, *more):
    match task:
        case "serve":
            return await serve()
        case "shares":
            result = await shares()
        case "alone" | "beside":
            result = await answers(task == "alone")
        case "files":
            result = await files(more[0], float(more[1]), more[2])
    print(json.dumps(result), flush=True)
    sys.exit(0)


asyncio.run(main(*sys.argv[1:]))
