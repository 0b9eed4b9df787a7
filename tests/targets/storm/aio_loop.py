"""aio_loop.py: an asyncio loop with timers, a stream that echoes, and futures from threads."""
import asyncio
import concurrent.futures
import time

import workload

SHORT = 0.005


async def echo(reader, writer):
    while True:
        line = await reader.readline()
        if not line:
            break
        writer.write(line)
        await writer.drain()
    writer.close()


async def timer(seconds):
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    workload.lasted(begin, seconds, "asyncio.sleep")
    return seconds


async def times_out():
    try:
        await asyncio.wait_for(asyncio.Event().wait(), SHORT)
    except asyncio.TimeoutError:
        return True


async def one_round(reader, writer):
    timers = [SHORT * i for i in range(1, 5)]
    workload.same(await asyncio.gather(*map(timer, timers)), timers, "gather")
    for i in range(10):
        line = b"%d\n" % i * (1 + workload.harmed)
        writer.write(line)
        workload.same(await reader.readline(), line, "echo")
    loop = asyncio.get_running_loop()
    workload.same(await loop.run_in_executor(None, sum, range(1000)), 499500, "executor")
    workload.same(await times_out(), True, "wait_for")


def work(index):
    loop = asyncio.new_event_loop()
    # which starts a further thread where the one that has just answered doesn't yet wait for more
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))

    async def prepare():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        return server, *await asyncio.open_connection(*server.sockets[0].getsockname())

    server, reader, writer = loop.run_until_complete(prepare())
    while True:
        loop.run_until_complete(one_round(reader, writer))
        yield


workload.run(work)
