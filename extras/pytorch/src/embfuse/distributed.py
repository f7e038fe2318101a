# SPDX-License-Identifier: MIT
"""Tables that are sharded over the ranks of a torch.distributed process group.

    torch.distributed.init_process_group("gloo")
    tables = ShardedEmbeddingBagCollection([Table(10_000_000, 64, "item")], plan={"item": "row_wise"}, optimizer="adagrad")
    output = tables(KeyedJaggedTensor(["item"], ids, lengths=lengths))     # of the bags of this rank

Shardings, under TorchRec's names: table_wise, a table is on one rank; row_wise, rank r has rows r*n to (r+1)*n - 1, where
n is the number of rows over that of ranks, rounded up. A pass has the same collectives on all ranks: two exchanges of ids
(how many, then lengths and ids), one of outputs, and one of gradients in backward(); with per-sample weights one more of
each. A bag goes only to ranks that have one of its rows, and so does its gradient. The step is the fused step of a shard.

Every rank has bags of its own, and the gradient is the sum over all ranks: divide the loss by the number of all bags.
"""
import torch
import torch.distributed as dist

from .modules import EmbeddingBag, KeyedTensor, Table, in_order, modules_of, padding_of
from .rules import understood

SHARDINGS = ("table_wise", "row_wise")
NONE, FIXED, LEARNT = range(3)  # per-sample weights of a batch


class _Exchange(torch.autograd.Function):
    """all_to_all_single; backward() is the same the other way. anchor is a scalar that wants a gradient on every rank, so
    that no rank misses the backward pass of the others."""

    @staticmethod
    def forward(ctx, anchor, data, send, receive, module, what):
        ctx.sizes, ctx.module, ctx.what = (send, receive), module, what
        return module._exchange(data, send, receive, what[0])

    @staticmethod
    def backward(ctx, grad):
        send, receive = ctx.sizes
        return grad.new_zeros(()), ctx.module._exchange(grad.contiguous(), receive, send, ctx.what[1]), None, None, None, None


class ShardedEmbeddingBagCollection(torch.nn.Module):
    """EmbeddingBagCollection over the ranks of a process group. plan: {name of a table: "row_wise", "table_wise" or
    ("table_wise", rank)}; otherwise row_wise, and table_wise tables go around the ranks. Poolings are sum and mean, and for
    table_wise max. A table's weight, if it is given, is that of all rows, on every rank. ranks that were given other tables
    are refused on all ranks. `bytes` has what this rank has sent to others since it was made."""

    def __init__(self, tables, *, plan=None, process_group=None, optimizer="sgd", device=None, **options):
        super().__init__()
        self.group, plan = process_group, dict(plan or {})
        self.rank, self.ranks = dist.get_rank(process_group), dist.get_world_size(process_group)
        self.tables, self.bytes = list(tables), {"ids": 0, "outputs": 0, "gradients": 0}
        self.features = [list(t.feature_names or [t.name]) for t in self.tables]
        self._names = [name for names in self.features for name in names]
        self.shards = torch.nn.ModuleDict()  # of the tables that have rows here
        self.owner, described, turn = [], [], 0
        for table in self.tables:
            sharding = plan.pop(table.name, "row_wise")
            sharding, rank = sharding if isinstance(sharding, tuple) else (sharding, None)
            if sharding not in SHARDINGS or (rank is not None and not 0 <= rank < self.ranks):
                raise ValueError(f"table {table.name}: sharding {sharding}, rank {rank}; there are {', '.join(SHARDINGS)} "
                                 f"and {self.ranks} ranks")
            if table.pooling not in ("sum", "mean") and (sharding, table.pooling) != ("table_wise", "max"):
                raise NotImplementedError(f"table {table.name}: pooling {table.pooling} of a {sharding} table")
            if sharding == "table_wise" and rank is None:
                rank, turn = turn % self.ranks, turn + 1
            self.owner.append(rank)
            described.append(repr((table.num_embeddings, table.embedding_dim, table.name, self.features, table.pooling,
                                   sharding, rank, table.optimizer or optimizer, table.hyper, table.padding_idx, table.dtype,
                                   sorted(options.items(), key=str))))
        if plan:
            raise ValueError(f"plan: there is no table {', '.join(plan)}")
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, described, process_group)
        for rank, theirs in enumerate(everyone):
            if theirs != everyone[0]:
                raise ValueError(f"rank {rank} has other tables than rank 0: {theirs} and {everyone[0]}")
        for number, table in enumerate(self.tables):
            begin, end = self._rows(number, self.rank)
            if begin == end:
                continue
            padding = padding_of(table.padding_idx, table.num_embeddings)
            rule, hyper = understood(table.optimizer or optimizer, {**options.get("hyper", {}), **table.hyper})
            weight = None if table.weight is None else table.weight[begin:end].clone()
            self.shards[table.name] = EmbeddingBag(
                end - begin, table.embedding_dim, mode="max" if table.pooling == "max" else "sum", include_last_offset=True,
                padding_idx=padding - begin if padding is not None and begin <= padding < end else None, _weight=weight,
                dtype=table.dtype, device=device, optimizer=rule, rounding=table.rounding, **{**options, **hyper})
        self._anchor = torch.zeros((), requires_grad=True)

    def _block(self, number):
        return -(-self.tables[number].num_embeddings // self.ranks)

    def _rows(self, number, rank):
        """The rows of a table on a rank: from, to."""
        rows, owner = self.tables[number].num_embeddings, self.owner[number]
        if owner is not None:
            return (0, rows) if owner == rank else (0, 0)
        return min(rank * self._block(number), rows), min((rank + 1) * self._block(number), rows)

    def _exchange(self, data, send, receive, what):
        out = data.new_empty(sum(receive))
        dist.all_to_all_single(out, data, receive, send, group=self.group)
        self.bytes[what] += (sum(send) - send[self.rank]) * data.element_size()
        return out

    # --- the requests of this rank

    def _split(self, number, ids, lengths):
        """One table's lookups by the rank that has their rows: (lookups in the order of ranks, the bags that go to each
        rank, their lengths, bags per rank, lookups per rank). Bags without a lookup on a rank do not go there."""
        bags = len(lengths)
        bag = torch.repeat_interleave(lengths)
        if self.owner[number] is not None:
            rank = torch.full_like(ids, self.owner[number])
        else:
            rank = ids // self._block(number)
        order = rank.argsort(stable=True)
        counts = torch.bincount(rank * bags + bag, minlength=self.ranks * bags)
        there = counts.nonzero().squeeze(1)
        each = torch.bincount(there // max(bags, 1), minlength=self.ranks)
        return order, there % max(bags, 1), counts[there], each.tolist(), torch.bincount(rank, minlength=self.ranks).tolist()

    @staticmethod
    def _malformed(values, lengths, weights):
        whole = (torch.int64, torch.int32)
        if values.dtype not in whole or lengths.dtype not in whole:
            return f"ids are {values.dtype}, lengths {lengths.dtype}, not int32 or int64"
        if weights is not None and (weights.dtype != torch.float32 or weights.shape != values.shape):
            return f"per-sample weights are {weights.dtype} {list(weights.shape)}, not float32 {list(values.shape)}"
        if len(lengths) and lengths.min() < 0 or lengths.sum() != len(values):
            return f"lengths are not the lengths of bags with {len(values)} ids in all"
        return None

    def _wrong(self, number, ids):
        rows = self.tables[number].num_embeddings
        bad = ((ids < 0) | (ids >= rows)).nonzero()
        return f"table {self.tables[number].name}: id {int(ids[bad[0]])} is not a row of {rows}" if len(bad) else None

    def forward(self, features):
        """features: KeyedJaggedTensor with the bags of this rank. Returns a KeyedTensor. A wrong batch of one rank is an
        error on all."""
        values, lengths, weights, strides = in_order(features, self._names)
        problem = self._malformed(values, lengths, weights)
        if problem:
            values, lengths = values[:0], lengths.new_zeros(len(lengths))
        lengths, bags, first, parts = lengths.long(), [], 0, []
        counts = [int(x.sum()) for x in lengths.split(strides)]
        at, end = 0, 0
        for number, names in enumerate(self.features):
            own = slice(first, first + len(names))
            begin, end = end, end + sum(counts[own])
            bags.append(sum(strides[own]))
            problem = problem or self._wrong(number, values[begin:end])
            ids = values[begin:end].long() if not problem else values[:0].long()
            sizes = lengths[at:at + bags[-1]] if not problem else lengths[:0]
            given = None if weights is None else weights[begin:end]
            parts.append((ids, sizes, given, *self._split(number, ids, sizes)))
            first, at = first + len(names), at + bags[-1]
        # How many bags and lookups of each table go to each rank, and what all ranks must agree on.
        header = torch.zeros(self.ranks, 2 * len(parts) + 2, dtype=torch.int64)
        for number, (*_, each, lookups) in enumerate(parts):
            header[:, 2 * number], header[:, 2 * number + 1] = torch.tensor(each), torch.tensor(lookups)
        header[:, -2] = problem is not None
        header[:, -1] = NONE if weights is None else FIXED if not weights.requires_grad else LEARNT
        width = [header.shape[1]] * self.ranks
        theirs = self._exchange(header.flatten(), width, width, "ids").view(self.ranks, -1)
        self._agree(theirs, problem)
        asked = self._requests(parts, theirs)
        outputs = self._answers(parts, asked, int(header[0, -1]))
        columns, dims = [], []
        for number, output in enumerate(outputs):
            own = strides[len(columns):len(columns) + len(self.features[number])]
            columns += output.split(own)
            dims += [self.tables[number].embedding_dim] * len(own)
        most = max(strides)
        columns = [torch.nn.functional.pad(c, (0, 0, 0, most - len(c))) for c in columns]
        return KeyedTensor(self._names, dims, torch.cat(columns, 1), strides)

    def _agree(self, theirs, problem):
        bad = theirs[:, -2].nonzero().flatten().tolist()
        if problem:
            raise IndexError(problem)
        if bad:
            raise IndexError(f"rank {bad[0]} has a wrong batch, and this pass ends on all ranks")
        if len(theirs[:, -1].unique()) != 1:
            raise ValueError("not all ranks have per-sample weights, or not all of these want a gradient")

    def _requests(self, parts, theirs):
        """[(ids, lengths, bags per rank, lookups per rank)] of each table: what all ranks ask of this one."""
        message = []
        for rank in range(self.ranks):
            for ids, _, _, order, _, sizes, each, lookups in parts:
                begin, at = sum(each[:rank]), sum(lookups[:rank])
                message += [sizes[begin:begin + each[rank]], ids[order[at:at + lookups[rank]]]]
        ends = [sum(p[6][r] + p[7][r] for p in parts) for r in range(self.ranks)]
        flat = theirs[:, :-2].flatten().tolist()
        got = self._exchange(torch.cat(message), ends, theirs[:, :-2].sum(1).tolist(), "ids").split(flat)
        asked = []
        for number in range(len(parts)):
            mine = [2 * (rank * len(parts) + number) for rank in range(self.ranks)]
            asked.append((torch.cat([got[i + 1] for i in mine]) - self._rows(number, self.rank)[0],
                          torch.cat([got[i] for i in mine]), [flat[i] for i in mine], [flat[i + 1] for i in mine]))
        return asked

    def _answers(self, parts, asked, weighted):
        """The outputs [bags of this rank, dim] of each table."""
        sample, anchor = [None] * len(parts), self._anchor
        if weighted != NONE:
            sample, got = self._sample_weights(parts, asked, weighted == LEARNT)
            anchor = anchor + got[:0].sum()  # so that the exchange of their gradient is part of every rank's pass
        rows = []
        for number, (ids, sizes, each, _) in enumerate(asked):
            table = self.tables[number]
            if table.name in self.shards:
                offsets = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
                output = self.shards[table.name](ids, offsets, sample[number])
            else:
                output = torch.zeros(0, table.embedding_dim)
            rows.append(output.split(each))
        dims = [t.embedding_dim for t in self.tables]
        send = [sum(asked[t][2][r] * d for t, d in enumerate(dims)) for r in range(self.ranks)]
        receive = [sum(p[6][r] * d for p, d in zip(parts, dims)) for r in range(self.ranks)]
        data = torch.cat([rows[t][r].flatten() for r in range(self.ranks) for t in range(len(parts))])
        back = _Exchange.apply(anchor, data, send, receive, self, ("outputs", "gradients"))
        pieces = back.split([p[6][r] * d for r in range(self.ranks) for p, d in zip(parts, dims)])
        return [self._pooled(number, part, torch.cat([pieces[r * len(parts) + number] for r in range(self.ranks)]))
                for number, part in enumerate(parts)]

    def _pooled(self, number, part, rows):
        """Sums what the ranks have of each bag."""
        ids, lengths, _, _, bag, *_ = part
        table = self.tables[number]
        rows = rows.view(-1, table.embedding_dim)
        output = rows.new_zeros(len(lengths), table.embedding_dim).index_add(0, bag, rows)
        if table.pooling == "mean":
            counted = torch.ones_like(ids) if table.padding_idx is None else (
                ids != padding_of(table.padding_idx, table.num_embeddings)).long()
            counts = torch.zeros(len(lengths), dtype=torch.int64).index_add(0, torch.repeat_interleave(lengths), counted)
            output = output / counts.clamp(min=1)[:, None]
        return output

    def _sample_weights(self, parts, asked, learnt):
        """([weights of the lookups] of each table, all of them), as this rank was asked."""
        data = torch.cat([given[order].split(lookups)[rank] for rank in range(self.ranks)
                          for _, _, given, order, *_, lookups in parts])
        send = [sum(p[7][r] for p in parts) for r in range(self.ranks)]
        receive = [sum(a[3][r] for a in asked) for r in range(self.ranks)]
        got = (_Exchange.apply(self._anchor, data, send, receive, self, ("ids", "gradients")) if learnt else
               self._exchange(data, send, receive, "ids"))
        pieces = got.split([a[3][r] for r in range(self.ranks) for a in asked])
        return [torch.cat([pieces[r * len(parts) + t] for r in range(self.ranks)]) for t in range(len(parts))], got

    # --- torch.distributed.checkpoint

    def sharded_state_dict(self):
        """{NAME.weight, NAME.state_0 ...: ShardedTensor, NAME.steps: tensor} for torch.distributed.checkpoint.save() and
        load(), on any number of ranks. load() writes into these tensors; load_steps() of the dict comes after it."""
        found = {}
        for number, table in enumerate(self.tables):
            shard = self.shards[table.name] if table.name in self.shards else None
            for name, width in self._arrays(number):
                found[f"{table.name}.{name}"] = self._sharded(number, shard and getattr(shard, name).detach(), width)
            found[f"{table.name}.steps"] = self._steps(number)
        return found

    def _arrays(self, number):
        """Names and columns of a table's arrays, on ranks without rows of it, too."""
        everyone = [None] * self.ranks
        name = self.tables[number].name
        mine = [("weight", self.tables[number].embedding_dim)] + [
            (n, getattr(self.shards[name], n).shape[1]) for n in self.shards[name]._states[0]] if name in self.shards else None
        dist.all_gather_object(everyone, mine, self.group)
        return next(x for x in everyone if x)

    def _sharded(self, number, local, width):
        from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
        begin, _ = self._rows(number, self.rank)
        shards = [] if local is None else [Shard.from_tensor_and_offsets(local, [begin, 0], self.rank)]
        return init_from_local_shards(shards, self.tables[number].num_embeddings, width, process_group=self.group)

    def _steps(self, number):
        steps = [None] * self.ranks
        name = self.tables[number].name
        dist.all_gather_object(steps, self.shards[name].steps if name in self.shards else None, self.group)
        return torch.tensor([next(s for s in steps if s is not None)])

    def load_steps(self, state_dict):
        for name, shard in self.shards.items():
            shard._steps.copy_(state_dict[f"{name}.steps"])


def ignore_in_ddp(model):
    """Tells DistributedDataParallel, which then wraps the model, that the tables of this package are not its business: no
    gradient of them exists, so that it would wait for ever; and shards are not copies of each other."""
    tables = {id(m) for m in modules_of(model)}
    names = [f"{path}.{name}" if path else name for path, m in model.named_modules() if id(m) in tables
             for name, _ in [*m.named_parameters(), *m.named_buffers()]]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    return model
