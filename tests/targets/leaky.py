"""leaky.py: a training job whose memory grows over its epochs: it keeps what it should only have counted. Each line of
its input is one more epoch."""
import sys


class Sample:
    def __init__(self, number):
        self.number = number
        self.weights = [float(number)] * 4


class Trainer:
    def __init__(self):
        self.total = 0.0
        self.seen = {}

    def step(self, number):
        sample = Sample(number)
        self.total += sample.weights[0]
        self.seen[number] = sample  # here

    def epoch(self, first):
        for number in range(first, first + 2000):
            self.step(number)


def main():
    trainer = Trainer()
    trainer.epoch(0)
    print("ready", flush=True)
    for epoch, _ in enumerate(sys.stdin, 1):
        trainer.epoch(epoch * 2000)
        print("done", flush=True)


main()
