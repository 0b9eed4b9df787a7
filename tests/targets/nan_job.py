"""nan_job.py [STEPS FIRST]: trains a model of eight weights, which another thread updates. Now and then a sample is
broken, and a weight becomes NaN: the job notices, begins anew, and goes on. Samples are whole until there is a line on
standard input, or before step FIRST. It ends when standard input does, or after so many steps without a pause; then it
says what became of it, as JSON."""
import array
import json
import queue
import sys
import threading
import time

SIZE, BROKEN_EVERY = 8, 300
RATE, DECAY = 0.01, 0.999


class Model:
    def __init__(self):
        self.weights = array.array("d", [0.5] * SIZE)

    def loss(self, sample):
        return sum((weight - value) ** 2 for weight, value in zip(self.weights, sample))

    def decay(self):
        for i in range(SIZE):
            self.weights[i] *= DECAY

    def reset(self):
        self.weights[:] = array.array("d", [0.5] * SIZE)


class Optimizer(threading.Thread):
    def __init__(self, model):
        super().__init__(name="optimizer", daemon=True)
        self.model, self.todo, self.done = model, queue.Queue(), queue.Queue()

    def apply(self, sample):
        for i, value in enumerate(sample):
            gradient = 2 * (self.model.weights[i] - value)
            self.model.weights[i] -= RATE * gradient  # here: it is written

    def run(self):
        while True:
            self.apply(self.todo.get())
            self.done.put(None)


def load(step):
    sample = [(step * 7 + i) % 11 / 11 for i in range(SIZE)]
    if step % BROKEN_EVERY == BROKEN_EVERY - 1 and (broken.is_set() if first is None else step >= first):
        sample[3] = 1e308 * 10 - 1e308 * 10
    return sample


def train(limit, pause):
    losses, bad, step = 0.0, [], 0
    while not ended.is_set() if limit is None else step < limit:
        sample = load(step)
        optimizer.todo.put(sample)
        optimizer.done.get()
        loss = model.loss(sample)
        if loss == loss:  # here: it is seen
            losses += loss
            model.decay()
        else:
            bad.append(step)
            model.reset()
        step += 1
        time.sleep(pause)
    return {"steps": step, "bad": bad, "losses": losses, "weights": list(model.weights)}


def listen():
    if sys.stdin.readline():
        broken.set()
    sys.stdin.read()
    ended.set()


def beat():
    while True:
        beats[0] += 1
        time.sleep(0.001)


model, broken, ended, beats, first = Model(), threading.Event(), threading.Event(), [0], None
optimizer = Optimizer(model)
optimizer.start()
if len(sys.argv) > 1:
    first = int(sys.argv[2])
    print(json.dumps(train(int(sys.argv[1]), 0)), flush=True)
else:
    threading.Thread(target=beat, name="beat", daemon=True).start()
    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    print(json.dumps(train(None, 0.002)), flush=True)
