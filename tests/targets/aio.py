"""An event loop with a few named tasks that await each other, a queue and a sleep."""
import asyncio

import oracle


async def producer(queue):
    await asyncio.sleep(10**6)
    await queue.put(1)


async def consumer(queue):
    return await queue.get()


async def joiner(*tasks):
    await asyncio.gather(*tasks)


async def main():
    queue = asyncio.Queue()
    tasks = [asyncio.ensure_future(producer(queue)), asyncio.ensure_future(consumer(queue))]
    last = asyncio.ensure_future(joiner(*tasks))
    oracle.ready_when_still()
    await last


asyncio.run(main())
