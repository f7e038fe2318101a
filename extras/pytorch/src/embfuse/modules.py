# SPDX-License-Identifier: MIT
"""torch.nn.EmbeddingBag, and a collection of them, whose backward pass is fused with the optimizer.

    bag = EmbeddingBag(rows, 64, mode="sum", optimizer="rowwise_adagrad", lr=0.05)
    loss(net(bag(ids, offsets))).backward()      # the rows of `ids` have taken their step

A weight is a Parameter whose gradient is never made: .grad stays None, and torch.optim leaves it alone. What it needs to
train is what autograd needs: a table with requires_grad_(False), and a lookup under no_grad(), take no step.

Lookups of one backward pass are one step, at its end; if another node raises, no table has moved. A lookup whose rows have
taken a step since is refused by autograd, as a tensor that was changed in place. With embfuse.Optimizer, gradients wait
for its step().
"""
import dataclasses
import itertools

import torch

from .rules import understood

lookup = torch.ops.embfuse.lookup.default
POOLINGS = {"sum": 0, "mean": 1, "max": 3}
ROUNDINGS = {"nearest": 0, "stochastic": 1}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def need_type(dtype, what):
    if dtype not in TYPES:
        raise TypeError(f"{what} are {', '.join(str(t)[6:] for t in TYPES)}, not {dtype}")
    return dtype


def new_weight(rows, dim, padding, dtype, device, weight=None):
    """A Parameter: this one, or drawn as torch.nn.EmbeddingBag draws it."""
    if weight is None:
        weight = torch.randn(rows, dim, device=device).to(need_type(dtype or torch.get_default_dtype(), "weights"))
        if padding is not None:
            weight[padding] = 0
    elif tuple(weight.shape) != (rows, dim) or dtype not in (None, weight.dtype):
        raise ValueError(f"weights are {weight.dtype} {list(weight.shape)}, not {dtype or weight.dtype} [{rows}, {dim}]")
    need_type(weight.dtype, "weights")
    return weight if isinstance(weight, torch.nn.Parameter) else torch.nn.Parameter(weight.detach())


@dataclasses.dataclass
class Described:
    """A table, as the operators know it."""
    rows: int
    dim: int
    rule: str
    rounding: str
    padding: int | None
    hyper: dict


def padding_of(index, rows):
    if index is not None and not -rows <= index < rows:
        raise ValueError(f"padding_idx {index} is not a row of {rows}")
    return index if index is None else index % rows


class Tables(torch.nn.Module):
    """What both modules share: the tables of one model of libembfuse, whose tensors torch owns."""

    def _describe(self, tables, features, *, kernel, threads, output_dtype, seed):
        """tables: [Described]; features: [(table, pooling)]. The tensors come later."""
        self._tables, self._features = tables, features
        self._options = (kernel, threads or 0, TYPES[need_type(output_dtype, "outputs")], seed)
        steps = torch.zeros(len(tables), dtype=torch.int64, device="cpu")  # where the others are does not matter
        self.register_buffer("_steps", steps, persistent=False)
        for table in tables:
            if table.rounding not in ROUNDINGS:
                raise ValueError(f"rounding is {' or '.join(ROUNDINGS)}, not {table.rounding}")
        self._make_model()

    def _make_model(self):
        kernel, threads, output, seed = self._options
        self._model = torch.ops.embfuse.new_model(
            [t.rows for t in self._tables], [t.dim for t in self._tables], [ROUNDINGS[t.rounding] for t in self._tables],
            [t.rule for t in self._tables], [t for t, _ in self._features], [POOLINGS[p] for _, p in self._features],
            [-1 if self._tables[t].padding is None else self._tables[t].padding for t, _ in self._features],
            kernel, threads, output, seed)
        self._number = self._model.number()
        self._states = [[name.replace(".", "_") for name, _ in self._model.states(t)] for t in range(len(self._tables))]
        for number, table in enumerate(self._tables):
            for name, value in table.hyper.items():
                self._model.set(number, name, value)

    def _add_states(self, number, module):
        """The states of a table as buffers of the module that has its weight."""
        for i, (name, width) in enumerate(self._model.states(number)):
            state = self._new_state(number, i + 1, width).to(module.weight.device)
            module.register_buffer(name.replace(".", "_"), state.repeat(self._tables[number].rows, 1))

    def _new_state(self, number, array, width):
        """A row [1, width] of array number `array` of a new table; array 0 is the weights."""
        values = [self._model.initial(number, array, column) for column in range(width)]
        return torch.tensor([values], dtype=torch.float32, device="cpu")

    def _homes(self):
        """[(prefix in a state_dict, module)] of the tables."""
        raise NotImplementedError

    # --- hyper-parameters and steps

    def set(self, table=None, **hyper):
        """Sets hyper-parameters of a table, or of all that have them, from the next step on."""
        given = range(len(self._tables)) if table is None else [table]
        for name, value in understood("", hyper)[1].items():
            known = [t for t in given if name in self._model.hyper_names(t)]
            if not known:
                raise ValueError(f"{', '.join({self._tables[t].rule for t in given})} has no hyper-parameter {name!r}")
            for t in known:
                self._model.set(t, name, value)
                self._tables[t].hyper[name] = value

    def hyper(self, table=0):
        """All hyper-parameters of a table."""
        return {name: self._model.get(table, name) for name in self._model.hyper_names(table)}

    lr = property(lambda self: self._model.get(0, "lr"), lambda self, value: self.set(lr=value))

    @property
    def steps(self):
        """The steps that table 0 has taken; bias corrections and stochastic rounding depend on them."""
        return int(self._steps[0])

    def _lookup(self, ids, offsets, include_last_offset, per_sample_weights):
        homes = [module for _, module in self._homes()]
        if not torch.compiler.is_compiling() and any(m.weight.requires_grad and not m.weight.is_leaf for m in homes):
            raise ValueError("a weight is no leaf: its step would change a tensor that nothing keeps")
        states = [getattr(m, name) for m, names in zip(homes, self._states) for name in names]
        return lookup([m.weight for m in homes], states, self._steps, ids, offsets, include_last_offset, per_sample_weights,
                      self._number)

    # --- copies, checkpoints, moves

    def __getstate__(self):
        state = {**self.__dict__, "_hyper": [self.hyper(t) for t in range(len(self._tables))]}
        del state["_model"], state["_number"]
        return state

    def __setstate__(self, state):
        hyper = state.pop("_hyper")
        super().__setstate__(state)
        for table, values in zip(self._tables, hyper):
            table.hyper = values
        self._make_model()

    def get_extra_state(self):
        return {"rules": [t.rule for t in self._tables], "hyper": [self.hyper(t) for t in range(len(self._tables))],
                "steps": self._steps.tolist()}

    def set_extra_state(self, state):
        for t, hyper in enumerate(state["hyper"]):
            self.set(table=t, **hyper)
        self._steps.copy_(torch.tensor(state["steps"]))

    def _load_from_state_dict(self, state_dict, prefix, *how):
        """A checkpoint of another rule or shape is refused before anything changes. One of torch.nn.EmbeddingBag has no
        states: these begin anew."""
        extra, rules = state_dict.get(prefix + "_extra_state"), [t.rule for t in self._tables]
        if extra is not None and extra["rules"] != rules:
            raise RuntimeError(f"{prefix}: saved with {', '.join(extra['rules'])}, but this module has {', '.join(rules)}")
        arrays = [(t, i, prefix + path + name, getattr(home, name)) for t, (path, home) in enumerate(self._homes())
                  for i, name in enumerate(["weight", *self._states[t]])]
        for _, _, key, array in arrays:
            if key in state_dict and state_dict[key].shape != array.shape:
                raise RuntimeError(f"size mismatch for {key}: saved {list(state_dict[key].shape)}, here {list(array.shape)}")
        there = {t for t, i, key, _ in arrays if i == 0 and key in state_dict}
        states = [x for x in arrays if x[1] > 0]
        if extra is None and there and not any(key in state_dict for _, _, key, _ in states):
            for t, i, key, array in states:
                new = self._new_state(t, i, array.shape[1]).to(array.device).repeat(len(array), 1)
                state_dict[key] = new if t in there else array
            steps = [0 if t in there else n for t, n in enumerate(self._steps.tolist())]
            state_dict[prefix + "_extra_state"] = {**self.get_extra_state(), "steps": steps}
        super()._load_from_state_dict(state_dict, prefix, *how)

    def _apply(self, fn, recurse=True):
        """States stay float32, and steps on the host."""
        homes = [home for _, home in self._homes()]
        wrong = [d for d in (fn(home.weight.detach()[:0]).dtype for home in homes) if d not in TYPES]
        if wrong:
            raise TypeError(f"weights would be {wrong[0]}, not float32, bfloat16 or float16")
        before, steps = [dict(home._buffers) for home in homes], self._steps
        super()._apply(fn, recurse)
        for home, states in zip(homes, before):
            for name, state in states.items():
                if home._buffers[name].dtype != state.dtype:
                    home._buffers[name] = state.to(home._buffers[name].device)
        self._steps = steps
        return self


class EmbeddingBag(Tables):
    """The arguments of torch.nn.EmbeddingBag and, by keyword:

    optimizer    a rule of rules/README.md, or the name that torch.optim or FBGEMM has for one; its hyper-parameters are
                 further keywords (lr, eps, betas ...), and set(lr=...) changes them, or bag.lr = ...
    dtype        of the weights: float32, bfloat16 or float16; rounding "nearest" or "stochastic" is how steps
                 write narrow ones, with `seed`
    output_dtype of outputs and gradients; float32 otherwise
    threads      those of PyTorch otherwise
    kernel       as `embfuse list` names it

    sparse has no meaning here: only the rows of a batch are touched. Means take per_sample_weights, too.
    """

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean",
                 sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None, *,
                 optimizer="sgd", output_dtype=torch.float32, rounding="nearest", seed=0, threads=None, kernel="auto",
                 **hyper):
        super().__init__()
        if mode not in POOLINGS or max_norm is not None or scale_grad_by_freq:
            raise NotImplementedError("mode is sum, mean or max, without max_norm and scale_grad_by_freq")
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.include_last_offset, self.padding_idx = include_last_offset, padding_of(padding_idx, num_embeddings)
        self.optimizer, hyper = understood(optimizer, hyper)
        self._describe([Described(num_embeddings, embedding_dim, self.optimizer, rounding, self.padding_idx, hyper)],
                       [(0, mode)], kernel=kernel, threads=threads, output_dtype=output_dtype, seed=seed)
        self.weight = new_weight(num_embeddings, embedding_dim, self.padding_idx, dtype, device, _weight)
        self._add_states(0, self)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **how):
        """A module with these weights [rows, dim], which it shares; freeze=False lets it train."""
        bag = cls(*embeddings.shape, _weight=embeddings, **how)
        bag.weight.requires_grad_(not freeze)
        return bag

    def _homes(self):
        return [("", self)]

    def forward(self, input, offsets=None, per_sample_weights=None):
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("ids of two dimensions have no offsets: each row is a bag")
        elif input.dim() != 1 or offsets is None or offsets.dim() != 1:
            raise ValueError("ids have two dimensions, or one and offsets of one")
        elif self.include_last_offset and len(offsets) == 0:
            raise ValueError("with include_last_offset there is at least one offset")
        check(input, offsets, per_sample_weights, self.mode, self.weight)
        return self._lookup(input, offsets, self.include_last_offset, per_sample_weights)

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode}, optimizer={self.optimizer}"


def check(ids, offsets, per_sample_weights, mode, weight):
    """offsets, or lengths."""
    for name, tensor in (("ids", ids), ("offsets", offsets), ("per_sample_weights", per_sample_weights)):
        if tensor is not None and tensor.device != weight.device:
            raise TypeError(f"{name} are on {tensor.device}, the table is on {weight.device}")
        if tensor is not None and name != "per_sample_weights" and tensor.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"{name} are {tensor.dtype}, not int32 or int64")
    if per_sample_weights is None:
        return
    if mode == "max":
        raise NotImplementedError("per_sample_weights are for modes sum and mean")
    if per_sample_weights.dtype != torch.float32:
        raise TypeError(f"per_sample_weights are {per_sample_weights.dtype}, not float32")
    if per_sample_weights.shape != ids.shape:
        raise ValueError("per_sample_weights have the shape of the ids")


# --- collections

@dataclasses.dataclass
class Table:
    """A table of a collection, in the words of TorchRec's EmbeddingBagConfig. What is None comes from the collection."""
    num_embeddings: int
    embedding_dim: int
    name: str
    feature_names: list | None = None  # that read it; its own name otherwise
    pooling: str = "sum"
    optimizer: str | None = None
    hyper: dict = dataclasses.field(default_factory=dict)
    padding_idx: int | None = None
    dtype: torch.dtype | None = None
    rounding: str = "nearest"
    weight: torch.Tensor | None = None


class KeyedJaggedTensor:
    """The ids of several features: those of the first, bag after bag, then those of the second ... As TorchRec's class of
    this name, which is accepted in its place. lengths or offsets are those of all bags; stride_per_key has the number of
    bags of each feature where they differ."""

    def __init__(self, keys, values, weights=None, lengths=None, offsets=None, stride_per_key=None):
        if (lengths is None) == (offsets is None):
            raise ValueError("either lengths or offsets are given")
        if lengths is None:
            if offsets.device.type == "cpu" and len(offsets) and offsets[0] != 0:
                raise ValueError(f"offsets begin with {offsets[0]}, not with 0")
            lengths = offsets.diff()
        if lengths.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"lengths are {lengths.dtype}, not int32 or int64")
        self._keys, self._values, self._weights, self._lengths = list(keys), values, weights, lengths
        self._strides = list(stride_per_key or [len(lengths) // max(len(self._keys), 1)] * len(self._keys))
        if len(set(self._keys)) != len(self._keys):
            raise ValueError(f"a feature is there twice: {self._keys}")
        if len(self._strides) != len(self._keys) or sum(self._strides) != len(lengths):
            raise ValueError(f"{len(self._keys)} features with {self._strides} bags have not {len(lengths)} lengths")

    def keys(self):
        return self._keys

    def values(self):
        return self._values

    def weights_or_none(self):
        return self._weights

    def lengths(self):
        return self._lengths

    def offsets(self):
        return torch.nn.functional.pad(self._lengths.to(torch.int64).cumsum(0), (1, 0))

    def to(self, device, non_blocking=False):
        moved = [x if x is None else x.to(device, non_blocking=non_blocking)
                 for x in (self._values, self._weights, self._lengths)]
        return KeyedJaggedTensor(self._keys, *moved[:2], lengths=moved[2], stride_per_key=self._strides)

    def stride_per_key(self):
        return self._strides


class KeyedTensor:
    """The outputs of several features as columns of one tensor; under the names of TorchRec's class."""

    def __init__(self, keys, length_per_key, values, stride_per_key=None):
        self._keys, self._lengths, self._values, self._strides = keys, length_per_key, values, stride_per_key

    def keys(self):
        return self._keys

    def length_per_key(self):
        return self._lengths

    def values(self):
        return self._values

    def to_dict(self):
        """{feature: output [bags, dim]}"""
        columns = self._values.split(self._lengths, dim=1)
        bags = self._strides or [len(self._values)] * len(columns)
        return {key: x[:n] for key, x, n in zip(self._keys, columns, bags)}

    def __getitem__(self, key):
        return self.to_dict()[key]


class EmbeddingBagCollection(Tables):
    """Tables that several features may share, looked up in one call and stepped in one call.

    tables: [Table], or [EmbeddingBagConfig] of TorchRec. The keywords are those of EmbeddingBag, for tables that do not
    say otherwise. A state_dict has the names of TorchRec: embedding_bags.NAME.weight.
    """

    def __init__(self, tables, *, optimizer="sgd", output_dtype=torch.float32, seed=0, threads=None, kernel="auto",
                 device=None, **hyper):
        super().__init__()
        tables, described, features, self._names = list(tables), [], [], []
        for number, table in enumerate(tables):
            given = lambda name, default=None: getattr(table, name, None) or default
            rule, values = understood(given("optimizer", optimizer), {**hyper, **given("hyper", {})})
            pooling = getattr(table.pooling, "value", table.pooling).lower()
            if pooling not in POOLINGS:
                raise NotImplementedError(f"table {table.name}: pooling is sum, mean or max, not {pooling}")
            described.append(Described(table.num_embeddings, table.embedding_dim, rule, given("rounding", "nearest"),
                                       padding_of(getattr(table, "padding_idx", None), table.num_embeddings), values))
            names = given("feature_names", [table.name])
            if isinstance(names, str):
                raise TypeError(f"table {table.name}: feature_names is a list")
            for name in names:
                features.append((number, pooling))
                self._names.append(name)
        if len(set(self._names)) != len(self._names) or len({t.name for t in tables}) != len(tables) or not features:
            raise ValueError(f"every table and every feature has a name of its own: {self._names}")
        self._describe(described, features, kernel=kernel, threads=threads, output_dtype=output_dtype, seed=seed)
        self.embedding_bags = torch.nn.ModuleDict()
        for number, table in enumerate(tables):
            home = torch.nn.Module()
            dtype = getattr(table, "dtype", None)
            home.weight = new_weight(table.num_embeddings, table.embedding_dim, described[number].padding, dtype, device,
                                     getattr(table, "weight", None))
            self.embedding_bags[table.name] = home
            self._add_states(number, home)

    def _homes(self):
        return [(f"embedding_bags.{name}.", home) for name, home in self.embedding_bags.items()]

    def feature_names(self):
        return self._names

    def forward(self, features):
        """features: KeyedJaggedTensor, here or in TorchRec. Returns a KeyedTensor."""
        values, lengths, weights, strides = in_order(features, self._names)
        homes = self._homes()
        for _, home in homes[:1]:
            modes = {pooling for _, pooling in self._features}
            check(values, lengths, weights, "max" if "max" in modes else "sum", home.weight)
        bags = max(strides)
        if min(strides) != bags:  # features with fewer bags get empty ones
            parts = lengths.split(strides)
            lengths = torch.cat([torch.nn.functional.pad(x, (0, bags - len(x))) for x in parts])
        offsets = torch.nn.functional.pad(lengths.to(torch.int64).cumsum(0), (1, 0))
        output = self._lookup(values, offsets, True, weights)
        dims = [self._tables[t].dim for t, _ in self._features]
        return KeyedTensor(self._names, dims, output, strides)

    def extra_repr(self):
        return f"{len(self._tables)} tables, {len(self._features)} features"


def in_order(features, names):
    """Values, lengths, weights and numbers of bags of a KeyedJaggedTensor, in this order of its features."""
    keys, values, lengths, weights = features.keys(), features.values(), features.lengths(), features.weights_or_none()
    strides = features.stride_per_key()
    if keys == names:
        return values, lengths, weights, strides
    missing = [name for name in names if name not in keys]
    if missing:
        raise ValueError(f"features {', '.join(missing)} are missing; there are {', '.join(keys)}")
    parts = lengths.split(strides)
    counts = [int(x.sum()) for x in parts]
    order = [keys.index(name) for name in names]
    pick = lambda x: torch.cat([x.split(counts)[i] for i in order])
    return (pick(values), torch.cat([parts[i] for i in order]), None if weights is None else pick(weights),
            [strides[i] for i in order])


def modules_of(root):
    """All modules of this package inside of a module, or of several."""
    roots = [root] if isinstance(root, torch.nn.Module) else list(root)
    return list(dict.fromkeys(m for m in itertools.chain.from_iterable(r.modules() for r in roots) if isinstance(m, Tables)))
