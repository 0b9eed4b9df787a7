"""numbers_loop.py: numpy, in a product of matrices most of the time."""
import numpy
import workload


def work(index):
    dice = numpy.random.RandomState(index)
    left, right = dice.rand(220, 220), dice.rand(220, 220)
    wanted = left @ right
    while True:
        got = left @ right
        if workload.harmed:
            got[3, 4] += 1e-9
        workload.same(bool((got == wanted).all()), True, "product")
        ordered = numpy.sort(dice.rand(20000))
        workload.same(bool((ordered[1:] >= ordered[:-1]).all()), True, "order")
        workload.same(float(numpy.float64(0.1) * 3), 0.1 * 3, "scalar")
        yield


workload.run(work)
