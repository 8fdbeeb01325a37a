#!/bin/sh
# Pays an invoice once, however often it is run: by hand, by cron, after a crash.
# Usage: pay-once.sh INVOICE CENTS [URL]
#
# The key is made from the invoice's number, so a second run is the same operation. The journal finishes what
# an earlier run left open. Exit codes are those of `onlyonce send`: 0 paid, 1 refused, 3 try later, 4 unknown.
set -eu
invoice=${1:?which invoice?}
cents=${2:?how many cents?}
url=${3:-http://127.0.0.1:8080/charges}
journal=${PAY_ONCE_JOURNAL:-$HOME/.pay-once.journal}

onlyonce send --resume --journal "$journal" ||
    echo "pay-once: something older is still open; see above" >&2

exec onlyonce send POST "$url" --journal "$journal" --derive invoice --derive "$invoice" \
    --json "{\"customer\":\"invoice $invoice\",\"amount\":$cents}"
