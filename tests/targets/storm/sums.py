"""sums.py [THREADS]: computes the same sums again and again."""
import workload


def fibonacci(count):
    a, b = 0, 1
    for _ in range(count):
        a, b = b, (a + b) & 0xFFFFFFFFFFFFFFFF
    return a


WANTED = fibonacci(300), sum(1 / i for i in range(1, 200))


def work(index):
    while True:
        workload.same((fibonacci(300), sum(1 / i for i in range(1, 200 - workload.harmed))), WANTED,
                      "sums")
        yield


workload.run(work, workload.argument(1))
