"""Trains a transformer: "run N" on standard input makes N steps and prints the seconds that the processor
worked on each."""
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("torch")
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)


class Model(nn.Module):
    def __init__(self, words=200, width=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


model, loss_of = Model(), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
batch = torch.randint(0, 200, (8, 32))


def step():
    optimizer.zero_grad()
    loss_of(model(batch).view(-1, 200), batch.view(-1)).backward()
    optimizer.step()


step()
print("ready", flush=True)
for line in sys.stdin:
    took = []
    for _ in range(int(line.split()[1])):
        begin = time.thread_time()
        step()
        took.append(time.thread_time() - begin)
    print(*took, flush=True)
