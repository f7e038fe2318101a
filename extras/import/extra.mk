# SPDX-License-Identifier: MIT
# Files of ids that people have on disk become traces: see extras/import/README.md.
#
#| make import    FROM=file.csv|tsv|parquet|feather|jsonl|npz|npy|pt|svm, compressed or not: a trace in build/import/;
#|                installs pandas and Arrow into build/import/venv, once (600 MB). COLUMNS="user item" (names, or numbers
#|                from 0), BY=user (its rows are a bag), IDS=keep|modulo:N|hash:N|first-seen, MISSING=empty, SPLIT='|',
#|                SEPARATOR=, HEADER=yes|no, FORMAT= (criteo, too), OFFSETS= LENGTHS= (arrays), ROWS= SKIP=, TO=prefix.
#|                TORCH_PYTHON=interpreter with PyTorch, in the environment, for .pt. TRACE= of bench takes such a file,
#|                too, with the same variables

.PHONY: import
import_venv      := build/import/venv
import_variables := COLUMNS BY IDS MISSING SPLIT SEPARATOR HEADER FORMAT OFFSETS LENGTHS SKIP TO
import_install   := [ -e $(import_venv)/complete ] || sh tests/support/venv.sh $(import_venv) $(PYTHON) import \
                    extras/import/requirements.txt 'pandas and Arrow, 600 MB' 'import pandas, pyarrow, sklearn, zstandard'
import_run        = $(import_venv)/bin/python extras/import/import.py $(call given,$(import_variables))

packages_import := python3 python3-venv
import:
	$(call require,import)
	@$(if $(FROM),,echo 'usage: make import FROM=file [COLUMNS="user item" BY=user IDS=hash:1000000]' >&2; exit 1)
	@$(import_install)
	@$(import_run) $(call given,ROWS) $(call quoted,$(FROM))

# A file that bench cannot read, but import can, is imported once: the trace is named by what the file holds. FORMAT= says
# that it is such a file, if its name does not.
import_formats      := .csv .tsv .jsonl .ndjson .parquet .pq .feather .arrow .npz .pt .pth .svm .libsvm
import_uncompressed  = $(patsubst %.gz,%,$(patsubst %.bz2,%,$(patsubst %.xz,%,$(patsubst %.zst,%,$(lastword $1)))))
ifneq ($(if $(TRACE),$(FORMAT))$(filter $(import_formats),$(suffix $(call import_uncompressed,$(TRACE)))),)
override TRACE := $(shell { $(import_install); } >&2 && $(import_run) --once $(call quoted,$(TRACE)))
$(if $(filter 0,$(.SHELLSTATUS)),,$(error TRACE was not imported; the line above says why))
endif

# Without a network the tests skip.
$(import_venv)/complete:
	@$(import_install) || :
packages_ci += python3-venv
packages_test-import := $(packages_test)
needs_import := $(import_venv)/complete $(B)/bench
