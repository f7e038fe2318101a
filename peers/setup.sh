#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes the virtual environment of the peers, once. Usage: setup.sh FOLDER PYTHON
set -u
venv=$1 python=$2
wanted=$(dirname "$0")/requirements.txt
log=$venv.log

give_up() {
    echo "peers: $1, see $log; everything else of the suite works without them" >&2
    exit 1
}

mkdir -p "$(dirname "$venv")"
"$python" -m venv "$venv" >"$log" 2>&1 ||
    give_up "$python cannot make a virtual environment (Debian: apt-get install python3-venv)"
echo "peers: installing PyTorch and FBGEMM, several gigabytes, once"
"$venv/bin/python" -m pip install --disable-pip-version-check --retries 1 -r "$wanted" \
    >>"$log" 2>&1 || give_up "pip could not install $wanted (no network?)"
"$venv/bin/python" -W ignore -c 'import torch, fbgemm_gpu
torch.ops.fbgemm.split_embedding_codegen_lookup_sgd_function_cpu' >>"$log" 2>&1 ||
    give_up "FBGEMM's operators do not load here"
touch "$venv/complete"
