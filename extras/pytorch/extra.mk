# SPDX-License-Identifier: MIT
# The module for PyTorch, `pip install ./extras/pytorch`, and checkpoints of PyTorch.
#
#| make pytorch   build and install the module for the tests into build/pytorch/site, for the PyTorch of TORCH_PYTHON or
#|                of make peers
#| make pytorch-speed  time of forward and step beside torch.nn.EmbeddingBag and beside the C call, in turns

.PHONY: pytorch pytorch-speed

torch_python := $(or $(TORCH_PYTHON),$(if $(wildcard $(B)/peers/venv/complete),$(B)/peers/venv/bin/python))
torch_site   := $(B)/pytorch/site
torch_ops    := $(torch_site)/embfuse/ops.so

# The wheel has a libembfuse of its own, which setup.py makes from the same sources as this one.
$(torch_ops): $(shared) $(wildcard extras/pytorch/*.cpp extras/pytorch/*.h extras/pytorch/setup.py extras/pytorch/pyproject.toml extras/pytorch/src/embfuse/*.py)
	@rm -rf $(torch_site)
	$(call quiet,PIP)$(torch_python) -m pip install --quiet --no-build-isolation --no-deps --no-index --root-user-action=ignore \
	    --target $(torch_site) ./extras/pytorch
	@touch $@

pytorch:
	@$(if $(torch_python),,echo 'no PyTorch: make peers installs it, or set TORCH_PYTHON=python' >&2; exit 1)
	@$(MAKE) --no-print-directory $(torch_ops)

pytorch-speed: pytorch $(shared)
	@PYTHONPATH=$(torch_site) EMBFUSE_LIBRARY=$(abspath $(shared)) $(torch_python) extras/pytorch/speed.py

packages_test-pytorch := $(packages_test) libjansson-dev
needs_pytorch := library $(if $(torch_python),$(torch_ops))
