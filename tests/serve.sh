#!/bin/sh
# Serves a model on 127.0.0.1:8080: serve.sh BINARY [MODEL]
# Without a model: $GGUFD_MODEL, else a small trained one beside the clone, else a tiny one with random weights, made here.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
binary=$1
model=${2:-${GGUFD_MODEL:-}}
if [ -z "$model" ]; then
    model=${GGUFD_SHARED:-$root/../shared}/fixtures/models/stories260K-q8_0.gguf
    if [ ! -r "$model" ]; then
        model=$root/build/tiny.gguf
        make -C "$root" --no-print-directory build/release/tests/tools/make_tiny
        "$root/build/release/tests/tools/make_tiny" "$model"
        echo "no model given (make run MODEL=file.gguf): serving $model, whose random weights speak no language"
    fi
fi
exec "$binary" --model "$model"
