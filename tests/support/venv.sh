#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a virtual environment, once. Usage: venv.sh FOLDER PYTHON WHO REQUIREMENTS WHAT CHECK
# WHO wants it, for messages; WHAT it installs; CHECK is a line of Python that must run there.
set -u
venv=$1 python=$2 who=$3 wanted=$4 what=$5 check=$6
log=$venv.log

give_up() {
    echo "$who: $1, see $log; everything else of the suite works without them" >&2
    exit 1
}

mkdir -p "$(dirname "$venv")"
"$python" -m venv "$venv" >"$log" 2>&1 ||
    give_up "$python cannot make a virtual environment (Debian: apt-get install python3-venv)"
echo "$who: installing $what, once"
"$venv/bin/python" -m pip install --disable-pip-version-check --retries 1 -r "$wanted" \
    >>"$log" 2>&1 || give_up "pip could not install $wanted (no network?)"
"$venv/bin/python" -W ignore -c "$check" >>"$log" 2>&1 || give_up "what was installed does not load here"
touch "$venv/complete"
