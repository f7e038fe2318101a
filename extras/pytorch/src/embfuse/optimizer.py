# SPDX-License-Identifier: MIT
"""An optimizer's face for tables that take their own steps: what schedulers, GradScaler, gradient accumulation and
clipping of torch expect to find.

    tables, rest = embfuse.Optimizer(model), torch.optim.Adam(net.parameters())
    for each batch:
        loss(model(x)).backward()
        tables.step(); rest.step()
        tables.zero_grad(); rest.zero_grad()

backward() leaves the gradients of outputs here, not gradients of tables. step() is the fused step of all lookups since
the last one, also of several passes: gradient accumulation.
"""
import weakref

import torch

from .modules import modules_of


def release(models):
    """Steps are taken by backward() again."""
    for model in models:
        model.defer(False)
        model.drop()


class Optimizer(torch.optim.Optimizer):
    """Of all tables of this package inside of a module, or of several modules, as long as the Optimizer lives.

    A group is a table: its weight, and its hyper-parameters under the names of rules/README.md, with betas for beta1 and
    beta2. step() sets what the groups say. Beside the weight stand the outputs whose gradients wait, so that GradScaler
    finds, unscales and checks what there is; so clip by clip_grad_norm_() here, which knows the gradients of rows.
    skip_nonfinite: a step is not taken, too, if a gradient that waits has inf or NaN. `skipped` counts what was not taken:
    by this, or because zero_grad() came before step(), as after an overflow of GradScaler.
    """

    def __init__(self, modules, skip_nonfinite=False):
        self.modules = modules_of(modules)
        if not self.modules:
            raise ValueError("there is no table of embfuse in it")
        self.skip_nonfinite, self.skipped, self._groups = skip_nonfinite, 0, []
        self._tables = [(m, t, home) for m in self.modules for t, (_, home) in enumerate(m._homes())]
        groups = [{"params": [home.weight], **named(m.hyper(t))} for m, t, home in self._tables]
        super().__init__(groups, {k: v for k, v in groups[0].items() if k != "params"})
        models = [module._model for module in self.modules]
        for model in models:
            model.defer(True)
        weakref.finalize(self, release, models)

    def __reduce__(self):
        raise TypeError("an Optimizer belongs to its tables: save state_dict(), and make another one")

    @property
    def param_groups(self):
        for group, (module, table, home) in zip(self._groups, self._tables):
            group["params"] = [home.weight, *(self._waiting(module) if table == 0 else ())]
        return self._groups

    def add_param_group(self, param_group):
        if len(self._groups) == len(self._tables):
            raise ValueError("the groups are the tables: make an optimizer of torch for other parameters")
        super().add_param_group(param_group)

    @param_groups.setter
    def param_groups(self, groups):
        self._groups = groups

    @staticmethod
    def _waiting(module):
        for grad in module._model.gradients():
            output = torch.nn.Parameter(grad.detach(), requires_grad=True)
            output.grad = grad
            yield output

    def _gradients(self):
        return [grad for module in self.modules for grad in module._model.gradients()]

    def zero_grad(self, set_to_none=True):
        """Forgets the gradients that wait."""
        self.skipped += bool(self._gradients())
        for module in self.modules:
            module._model.drop()

    @torch.no_grad()
    def step(self, closure=None):
        """The fused step, if any gradient waits."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, (module, table, _) in zip(self._groups, self._tables):
            names = named(module.hyper(table))
            module.set(table=table, **{name: group[name] for name in names})
        if self.skip_nonfinite and not all(g.isfinite().all() for g in self._gradients()):
            self.zero_grad()
        for module in self.modules:
            module._model.flush()
        for group, (*_, home) in zip(self._groups, self._tables):
            group["params"] = [home.weight]
        return loss

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm, others=()):
        """As torch.nn.utils.clip_grad_norm_() on the gradients of these tables, summed for each row, and of the parameters
        `others`: all are scaled so that their common 2-norm is at most max_norm. Returns the norm that they had. The sums
        of rows are made for it, in memory of one row for each row that the lookups touch."""
        others = [p.grad for p in others if p.grad is not None]
        squares = [square for module in self.modules for square in squares_of(module)]
        squares += [torch.linalg.vector_norm(g).square() for g in others]
        norm = torch.stack([s.to(squares[0].device) for s in squares]).sum().sqrt() if squares else torch.zeros(())
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for grad in (*others, *self._gradients()):
            grad.mul_(factor.to(grad.device))
        return norm

    def state_dict(self):
        """Hyper-parameters, in the order of the tables. States of the rules are in the state_dict of the modules."""
        return {"state": {}, "param_groups": [{k: v for k, v in g.items() if k != "params"} for g in self._groups]}

    def load_state_dict(self, state_dict):
        groups = state_dict["param_groups"]
        if len(groups) != len(self._groups):
            raise ValueError(f"saved of {len(groups)} tables, but there are {len(self._groups)}")
        for group, saved in zip(self._groups, groups):
            missing = set(group) - {"params"} - set(saved)
            if missing:
                raise ValueError(f"saved of another rule: it has no {', '.join(sorted(missing))}")
        for group, saved in zip(self._groups, groups):
            group.update(saved)


def named(hyper):
    """Hyper-parameters as torch.optim names them."""
    found = dict(hyper)
    if "beta2" in found:
        found["betas"] = (found.pop("beta1"), found.pop("beta2"))
    return found


def lookups_of(module, index):
    """Of one lookup that waits: for each feature, its table, ids, and the gradient that each id's row gets from it."""
    ids, offsets, weights, winners = module._model.lookup(index)
    grad, column = module._model.gradients()[index].float(), 0
    bags = (len(offsets) - 1) // len(module._features)
    for f, (t, pooling) in enumerate(module._features):
        table = module._tables[t]
        begin, end = int(offsets[f * bags]), int(offsets[(f + 1) * bags])
        first, own = offsets[f * bags:(f + 1) * bags], ids[begin:end].long()
        bag = torch.repeat_interleave(offsets[f * bags:(f + 1) * bags + 1].diff())
        counts = torch.ones(len(own), device=own.device) if table.padding is None else (own != table.padding).float()
        columns = slice(column, column + table.dim)
        each = grad[bag, columns] * counts[:, None]
        column += table.dim
        if pooling == "mean":
            each /= torch.zeros(bags, device=own.device).index_add_(0, bag, counts).clamp(min=1)[bag, None]
        if pooling == "max":
            each *= winners[bag, columns] == (torch.arange(begin, end, device=own.device) - first[bag])[:, None]
        if weights is not None:
            each *= weights[begin:end, None]
        yield t, own, each


def squares_of(module):
    """The square of the norm of the gradient of each table that trains."""
    found = [[] for _ in module._tables]
    for index in range(len(module._model.gradients())):
        for table, ids, each in lookups_of(module, index):
            found[table].append((ids, each))
    for (_, home), parts in zip(module._homes(), found):
        if not home.weight.requires_grad or not parts:
            continue
        ids, each = (torch.cat(x) for x in zip(*parts))
        rows, row = ids.unique(return_inverse=True)
        yield torch.zeros(len(rows), each.shape[1], device=each.device).index_add_(0, row, each).square().sum()
