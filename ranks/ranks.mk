# SPDX-License-Identifier: MIT
# Several ranks. Only programs that talk over MPI link with it.

mpi_files     := ranks/transport_mpi.c
ranks_objects := $(patsubst %.c,$(B)/%.o,$(filter-out $(mpi_files),$(sort $(wildcard ranks/*.c))))
