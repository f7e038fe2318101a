#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the tests of device kernels with nvcc's PTX, all of them, and records the kernels that passed.
# Usage: BUILD=build NVCC=nvcc PYTHON=python3 extras/cuda/tests/ptx_verify.sh PROGRAM... -- KERNEL...
set -u
unset TESTS
programs=
while [ "$1" != -- ]; do programs="$programs $1" && shift; done
shift
export LOGS=$BUILD/ptx/logs
rm -rf "$LOGS"
tests/run.sh $programs
status=$?
"$PYTHON" extras/cuda/tests/ptx_record.py "$LOGS" "$@" || status=1
exit $status
