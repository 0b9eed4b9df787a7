"""Nested calls of every kind of callable, down to a lock."""
import oracle


class Model:
    def forward(self, x):
        return self._layer(x)

    @staticmethod
    def _inner():
        def closure():
            oracle.park()
        return [closure() for _ in range(1)]

    @classmethod
    def make(cls):
        return (lambda: cls._inner())()

    def _layer(self, x):
        return self[x]

    def __getitem__(self, key):
        return self.make()

    @property
    def attribute(self):
        return self.forward(
            1,
        )


def main(*args, **kwargs):
    return Model().attribute


if __name__ == "__main__":
    main(1, 2, three=3)
