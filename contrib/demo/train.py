"""A training loop to look at: a small neural network by hand, with loader threads.

It learns to tell two spirals apart, in pure Python, and runs until it is told to stop (Ctrl-C) or
for --steps. It knows nothing of probefs.
"""
import argparse
import math
import queue
import random
import threading


def dot(a, b):
    total = 0.0
    for x, y in zip(a, b):
        total += x * y
    return total


class Linear:
    def __init__(self, inputs, outputs):
        scale = math.sqrt(1 / inputs)
        self.weight = [[random.gauss(0, scale) for _ in range(inputs)] for _ in range(outputs)]
        self.bias = [0.0] * outputs
        self.seen = None
        self.zero_grad()

    def zero_grad(self):
        self.weight_grad = [[0.0] * len(row) for row in self.weight]
        self.bias_grad = [0.0] * len(self.bias)

    def forward(self, x):
        self.seen = x
        return [dot(row, x) + bias for row, bias in zip(self.weight, self.bias)]

    def backward(self, grad):
        back = [0.0] * len(self.seen)
        for i, g in enumerate(grad):
            row, row_grad = self.weight[i], self.weight_grad[i]
            self.bias_grad[i] += g
            for j, x in enumerate(self.seen):
                row_grad[j] += g * x
                back[j] += g * row[j]
        return back

    def update(self, rate):
        for row, row_grad in zip(self.weight, self.weight_grad):
            for j, g in enumerate(row_grad):
                row[j] -= rate * g
        self.bias = [b - rate * g for b, g in zip(self.bias, self.bias_grad)]
        self.zero_grad()


class Tanh:
    def forward(self, x):
        self.seen = [math.tanh(value) for value in x]
        return self.seen

    def backward(self, grad):
        return [g * (1 - y * y) for g, y in zip(grad, self.seen)]

    def update(self, rate):
        pass


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, grad):
        for layer in reversed(self.layers):
            grad = layer.backward(grad)

    def update(self, rate):
        for layer in self.layers:
            layer.update(rate)


class Spirals:
    """Points on two interleaved spirals, with noise."""

    def sample(self):
        label = random.randrange(2)
        turn = random.random() * 3
        angle = turn * 2 + label * math.pi
        return self.augment((turn * math.cos(angle), turn * math.sin(angle))), label

    def augment(self, point):
        return [value + random.gauss(0, 0.05) for value in point]


class Loader:
    """Fills a queue with batches from a few threads."""

    def __init__(self, dataset, batch_size, workers=2):
        self.dataset, self.batch_size = dataset, batch_size
        self.batches = queue.Queue(maxsize=4)
        for i in range(workers):
            threading.Thread(target=self.work, name=f"loader-{i}", daemon=True).start()

    def work(self):
        while True:
            batch = [self.dataset.sample() for _ in range(self.batch_size)]
            self.batches.put(batch)

    def __iter__(self):
        while True:
            yield self.batches.get()


def loss_and_grad(score, label):
    """Logistic loss of one score, and its derivative."""
    probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
    loss = -math.log(probability if label else 1 - probability)
    return loss, probability - label


def train_step(model, batch, rate):
    total = correct = 0
    for point, label in batch:
        score = model.forward(point)[0]
        loss, grad = loss_and_grad(score, label)
        model.backward([grad / len(batch)])
        total += loss
        correct += (score > 0) == bool(label)
    model.update(rate)
    return total / len(batch), correct / len(batch)


def train(model, loader, rate, steps):
    loss = accuracy = None
    for step, batch in enumerate(loader, 1):
        loss, accuracy = train_step(model, batch, rate)
        if step % 50 == 0:
            print(f"step {step} loss {loss:.4f} accuracy {accuracy:.2f}", flush=True)
        if step == steps:
            return loss


def main():
    parser = argparse.ArgumentParser(description="Train a small network on two spirals.")
    parser.add_argument("--lr", type=float, default=0.3, help="learning rate")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many; 0: never")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    model = Sequential(Linear(2, 24), Tanh(), Linear(24, 24), Tanh(), Linear(24, 1))
    train(model, Loader(Spirals(), batch_size=32), args.lr, args.steps)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
