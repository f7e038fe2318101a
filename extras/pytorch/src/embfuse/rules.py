# SPDX-License-Identifier: MIT
"""Names of optimizers in torch.optim and FBGEMM, and the rules and hyper-parameters of rules/README.md that they are."""

# Name without case: (rule, hyper-parameters that the name stands for). The defaults of a system are not among them.
ALIASES = {
    "adamw": ("adam", {"decoupled_weight_decay": 1}),
    "sparseadam": ("adam_epsilon_hat", {}),
    "sparse_adam": ("adam_epsilon_hat", {}),
    "lars_sgd": ("lars", {}),
    "exact_sgd": ("sgd", {}),
    "exact_adagrad": ("adagrad", {}),
    "exact_rowwise_adagrad": ("rowwise_adagrad", {}),
    "partial_rowwise_adam": ("rowwise_adam", {}),
    "partial_rowwise_lamb": ("rowwise_lamb", {}),
    "ensemble_rowwise_adagrad": ("rowwise_adagrad_ema", {}),
}
# Names of hyper-parameters in torch.optim, FBGEMM and TorchRec.
HYPER = {"learning_rate": "lr", "epsilon": "eps", "initial_accumulator_value": "initial_accumulator"}


def understood(optimizer, hyper):
    """(rule, its hyper-parameters) of a name of ours, of torch.optim (also the class) or of FBGEMM, and of theirs."""
    name = optimizer if isinstance(optimizer, str) else getattr(optimizer, "value", None) or optimizer.__name__
    rule, found = ALIASES.get(name.lower(), (name.lower(), {}))
    found = dict(found)
    hyper = dict(hyper)
    for key, value in hyper.items():
        if key == "betas":
            found["beta1"], found["beta2"] = value
        else:
            found[HYPER.get(key, key)] = float(value)
    if rule == "sgd" and found.get("momentum"):
        rule = "momentum"
    elif rule == "sgd":
        for key in ("momentum", "dampening", "nesterov"):
            if not found.get(key):
                found.pop(key, None)
    if rule == "adam" and found.pop("amsgrad", 0):
        rule = "amsgrad"
    if rule == "rmsprop":
        momentum, centered = found.get("momentum", 0), found.pop("centered", 0)
        rule = "rmsprop_centered" if centered else "rmsprop_momentum" if momentum else rule
        if rule == "rmsprop":
            found.pop("momentum", None)
    return rule, found
