"""Trains a model: training.py PROGRAM. Never heard of any recorder, but for importing the agent if asked to.

Commands on standard input: "run N" makes N iterations and prints their losses, to the last bit; "state" prints a
digest of all parameters; "oracle N" the same with the program's own clocks: how often and for how long each
module ran, and in which order their backward passes ended; "traces" what anybody may have left here."""
import gc
import hashlib
import json
import os
import sys
import threading
import time
import types
import warnings

if os.environ.get("AGENT"):
    import probing
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(1)
optimizers, models, kept = [], [], []


def optimizer(kind, parameters, *args, **kwargs):
    optimizers.append(kind(parameters, *args, **kwargs))
    return optimizers[-1]


class Transformer(nn.Module):
    def __init__(self, layers=2, width=16):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 50)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def transformer():
    model = Transformer()
    adam = optimizer(torch.optim.Adam, model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 3, 0.5)
    loss_of = nn.CrossEntropyLoss()
    models.append(model)

    def iteration():
        tokens = torch.randint(0, 50, (4, 8))
        adam.zero_grad()
        loss = loss_of(model(tokens).view(-1, 50), tokens.view(-1))
        loss.backward()
        adam.step()
        scheduler.step()
        return loss.item()
    return iteration


class Branches(nn.Module):
    """What is hard on hooks: a module that is called twice, one that works in place, on a view too, one that gives
    back what it got, tuples and dicts, frozen parameters, parts without gradients, recomputed ones and compiled ones,
    one that raises."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)
        self.same = nn.Identity()
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unused = nn.Linear(8, 8)
        self.again = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())
        self.script = torch.jit.script(nn.Sequential(nn.ReLU(), nn.Linear(8, 8)))
        self.picky = Picky()
        self.split = Split()

    def forward(self, x):
        x = self.relu(self.first(self.same(x)))
        x = self.first(x)
        x[:, 0].mul_(2)
        out, (h, c) = self.lstm(x)
        out = out + self.q(out) * self.k(out) + self.v(out)
        out = self.frozen(out)
        out = checkpoint(self.again, out)
        with torch.no_grad():
            self.unused(out)
        try:
            self.picky(out)
        except ValueError:
            pass
        parts = self.split(self.script(out) * 1)
        view = parts["left"]
        self.relu(view)
        return {"out": view.sum() + parts["right"][0].pow(2).sum() + h.sum() + c.sum()}


class Picky(nn.Module):
    def forward(self, x):
        nn.Linear(8, 8, bias=False).requires_grad_(False)(x)
        raise ValueError("no")


class Split(nn.Module):
    def forward(self, x):
        return {"left": x[..., :4], "right": (x[..., 4:].clone(), None)}


def branches():
    model = Branches()
    sgd = optimizer(torch.optim.SGD, [p for p in model.parameters() if p.requires_grad], 1e-3, momentum=0.9)
    models.append(model)

    def iteration():
        sgd.zero_grad()
        loss = model(torch.randn(4, 5, 8).requires_grad_())["out"]
        loss.backward(retain_graph=True)
        loss.backward()
        sgd.step()
        model.eval()
        with torch.no_grad():
            model.again(torch.ones(2, 8))
        model.train()
        return loss.item()
    return iteration


def gan():
    G, D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), nn.Sequential(nn.Linear(8, 1))
    g, d = optimizer(torch.optim.Adam, G.parameters()), optimizer(torch.optim.Adam, D.parameters())
    loss_of = nn.BCEWithLogitsLoss()
    models.extend([G, D])

    def iteration():
        noise = torch.randn(4, 4)
        d.zero_grad()
        loss = loss_of(D(torch.randn(4, 8)), torch.ones(4, 1)) + loss_of(D(G(noise).detach()), torch.zeros(4, 1))
        loss.backward()
        d.step()
        g.zero_grad()
        fooled = loss_of(D(G(noise)), torch.ones(4, 1))
        fooled.backward()
        g.step()
        return loss.item() + fooled.item()
    return iteration


class Plain(torch.optim.Optimizer):
    """A program's own optimizer, which uses another one's step()."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.inner = torch.optim.SGD(self.param_groups[0]["params"], 1e-2)

    def step(self, closure=None):
        return self.inner.step(closure)


def closures():
    """Optimizers that call the model themselves, or another optimizer."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    lbfgs = optimizer(torch.optim.LBFGS, model.parameters(), lr=0.1, max_iter=3)
    models.append(model)
    made = []

    def iteration():
        if not made:
            made.append(optimizer(Plain, model.parameters()))  # its class was never used before
        x = torch.randn(8, 4)

        def closure():
            lbfgs.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            return loss
        loss = lbfgs.step(closure)
        made[0].step(closure)
        return float(loss)
    return iteration


def wrapped():
    """Distributed over one process, in parallel on no GPU, and scaled for no reduced precision."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    outer = nn.DataParallel(model.module)
    sgd = optimizer(torch.optim.SGD, model.parameters(), 1e-2)
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    models.append(model)

    def iteration():
        sgd.zero_grad()
        loss = model(torch.randn(8, 4)).pow(2).mean() + outer(torch.randn(8, 4)).pow(2).mean() * 0
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
        return loss.item()
    return iteration


def blocking():
    """Waits in the middle of a module for a file to appear, if another one is there."""
    class Wait(nn.Module):
        def forward(self, x):
            if os.path.exists(sys.argv[2]):
                print("waiting", flush=True)
                while os.path.exists(sys.argv[2]):
                    time.sleep(0.01)
            return x * 1
    model = nn.Sequential(nn.Linear(4, 4), Wait(), nn.Linear(4, 1))
    adam = optimizer(torch.optim.Adam, model.parameters())
    models.append(model)

    def iteration():
        adam.zero_grad()
        loss = model(torch.randn(8, 4)).pow(2).mean()
        kept.append(loss)  # and with it the graph
        loss.backward(retain_graph=True)
        adam.step()
        return loss.item()
    return iteration


def compiled():
    """The model, and with an argument the optimizer too, are for torch.compile()."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    fast = torch.compile(model, backend="eager")
    adam = optimizer(torch.optim.Adam, model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 3)
    models.append(model)
    step = torch.compile(lambda: adam.step(), backend="eager") if sys.argv[2:] else adam.step

    def iteration():
        adam.zero_grad()
        loss = fast(torch.randn(8, 4)).pow(2).mean()
        loss.backward()
        step()
        scheduler.step()
        return loss.item()
    return iteration


def deep():
    model = nn.Sequential(*[nn.Identity() for _ in range(12000)], nn.Linear(2, 1))
    sgd = optimizer(torch.optim.SGD, model.parameters(), 1e-3)
    models.append(model)

    def iteration():
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        sgd.step()
        return loss.item()
    return iteration


def workers():
    """A DataLoader with processes of its own, and a child that trains, too."""
    data = torch.utils.data.TensorDataset(torch.randn(64, 4))
    model = nn.Linear(4, 1)
    adam = optimizer(torch.optim.Adam, model.parameters())
    models.append(model)
    batches = []

    def train(x):
        adam.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        adam.step()
        return loss.item()

    def iteration():
        if not batches:
            batches.extend(torch.utils.data.DataLoader(data, batch_size=4, num_workers=2))
            pid = os.fork()
            if not pid:
                [train(batches[0][0]) for _ in range(20)]
                os._exit(5)
            assert os.waitpid(pid, 0)[1] >> 8 == 5
        return train(batches.pop()[0])
    return iteration


def oracle(iteration, n):
    """n iterations with clocks of our own around each module's forward(), and then one with hooks that tell
    in which order the backward passes of modules without children end."""
    calls = {}

    def clock(name, module):
        forward = module.forward

        def timed(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return forward(*args, **kwargs)
            finally:
                calls.setdefault(name, []).append(time.perf_counter() - begin)
        module.forward = timed
    named = list(models[0].named_modules())
    for name, module in named:
        clock(name, module)
    losses = [iteration().hex() for _ in range(n)]
    for _, module in named:
        del module.forward
    return {"losses": losses, "calls": calls, "names": [name for name, _ in named]}


def backward_order(iteration):
    ended = []

    def hook(name):
        return lambda *_: ended.append(name)
    handles = [module.register_full_backward_hook(hook(name)) for name, module in models[0].named_modules()
               if not list(module.children())]
    iteration()
    for handle in handles:
        handle.remove()
    return ended


def functions_of(function, depth=0):
    """What it consists of: its own identity, and what its closure holds."""
    if depth > 8 or type(function) is not types.FunctionType:
        return [id(function)]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [id(function), sorted(function.__dict__), id(function.__dict__.get("__wrapped__")),
            [functions_of(one, depth + 1) for one in cells]]


def traces():
    gc.collect()
    module = torch.nn.modules.module
    classes, todo = [], [torch.optim.Optimizer]
    while todo:
        classes.append(todo.pop())
        todo.extend(type.__subclasses__(classes[-1]))
    mine = [one for one in gc.get_objects()
            if type(one) is types.FunctionType and one.__code__.co_filename.startswith("<probefs torch")]
    return {
        "hooks": {name: len(value) for name, value in vars(module).items()
                  if name.startswith("_global") and hasattr(value, "__len__")},
        "classes": {one.__name__: [sorted(vars(one)), functions_of(vars(one).get("step"))] for one in classes},
        "optimizers": [[sorted(vars(one)), functions_of(vars(one).get("step"))] for one in optimizers],
        "modules": [[sorted(vars(one)), [len(value) for name, value in vars(one).items() if "hooks" in name]]
                    for model in models for one in model.modules()],
        "functions": [one.__qualname__ for one in mine],
    }


def without_us(iteration):
    """The files of the code that an iteration runs, ours being "<probefs...>"."""
    files = set()

    def profile(frame, event, arg):
        files.add(frame.f_code.co_filename)
    sys.setprofile(profile)
    iteration()
    for loss in kept:
        try:
            loss.backward(retain_graph=True)
        except RuntimeError:  # the parameters have been changed since: not the first node's
            pass
    sys.setprofile(None)
    return sorted(name for name in files if name.startswith("<probefs"))


def main():
    iteration = globals()[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "run":
            said = [iteration().hex() for _ in range(int(numbers[0]))]
        elif word == "state":
            said = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for model in models
                                           for p in model.parameters())).hexdigest()
        elif word == "oracle":
            said = oracle(iteration, int(numbers[0]))
        elif word == "order":
            said = backward_order(iteration)
        elif word == "traces":
            said = traces()
        elif word == "foreign":
            said = without_us(iteration)
        elif word == "exec":
            exec(line[5:], globals())
            said = globals().get("answer")
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
