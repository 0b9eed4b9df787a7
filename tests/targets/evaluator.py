"""evaluator.py FILE...: a program whose main thread sleeps in main() -> work() -> leaf(), while
evaluator_server.py, which reads FILE..., evaluates in it."""
import evaluator_server

counter = 7


class Model:
    def __repr__(self):
        return "<Model>"


def leaf(x):
    items = [1, 2, 3]
    free = "free"

    def reader():
        return free, x

    # the main thread waits in this frame
    evaluator_server.gate.acquire()
    return items, reader()


def work():
    width = 640
    return leaf(42), width


def main():
    loss = 0.25
    model = Model()
    result = work()
    return loss, model, result


evaluator_server.start()
evaluator_server.finish(main())
