"""malloc_churn.py [THREADS]: allocates and frees blocks of many sizes, compresses and decompresses."""
import ctypes
import random
import zlib

import workload

CHECKSUM = zlib.crc32(b"a" * 50000)


def uniform(block, byte):
    return block.count(byte) == len(block)


def work(index):
    dice = random.Random(index)
    number = 0
    while True:
        sizes = [dice.randrange(400, 20000) for _ in range(60)]
        blocks = [(i, bytes([i]) * size) for i, size in enumerate(sizes)]
        if workload.harmed:
            ctypes.memset(id(blocks[7][1]) + bytes.__basicsize__, 255, 1)
        dice.shuffle(blocks)
        workload.same(sum(len(block) for _, block in blocks), sum(sizes), "sizes of blocks")
        while blocks:
            byte, block = blocks.pop(dice.randrange(len(blocks)))
            workload.same(uniform(block, byte), True, "a block's bytes")
        number += 1
        text = bytes(20000) + str(number).encode()
        workload.same(zlib.decompress(zlib.compress(text, 1)), text, "zlib round trip")
        workload.same(zlib.crc32(b"a" * 50000), CHECKSUM, "checksum")
        yield


workload.run(work, workload.argument(4))
