#!/bin/sh
# Pays an invoice once, however often it is run: by hand, by cron, after a crash.
# Usage: pay-once.sh INVOICE CENTS [URL]
#
# The key is made from the invoice's number, so a second run is the same operation. The journal finishes what
# an earlier run left open. Exit codes are those of `onlyonce send`: 0 paid, 1 refused, 3 try later, 4 unknown.
# A run that succeeds prints the answer on stdout and nothing on stderr: for cron, send stdout to /dev/null.
set -eu
invoice=${1:?which invoice?}
cents=${2:?how many cents?}
url=${3:-http://127.0.0.1:8080/charges}
journal=${PAY_ONCE_JOURNAL:-$HOME/.pay-once.journal}

# The first run makes the journal.
[ ! -e "$journal" ] || onlyonce send --quiet --resume --journal "$journal" ||
    echo "pay-once: an older payment is still open; see above, and: onlyonce send --list --journal $journal" >&2

exec onlyonce send --quiet POST "$url" --journal "$journal" --derive invoice --derive "$invoice" \
    --json "{\"customer\":\"invoice $invoice\",\"amount\":$cents}"
