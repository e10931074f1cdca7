#!/bin/sh
# `make run`: serves a model on 127.0.0.1:8080 and prints what to try. serve.sh BINARY [MODEL]
# Without MODEL: the first of tests/models/*.gguf, else a tiny model with random weights, written into build/.
binary=$1
model=$2
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "$model" ]; then
    for candidate in "$root"/tests/models/*.gguf; do
        [ -r "$candidate" ] && model=$candidate && break
    done
fi
if [ -z "$model" ]; then
    model=$root/build/tiny.gguf
    if [ ! -r "$model" ]; then
        make -s --no-print-directory -C "$root" MODE=release build/release/tests/tools/make_tiny || exit 1
        "$root/build/release/tests/tools/make_tiny" "$model" || exit 1
    fi
    echo "no model named: serving one with random weights (make run MODEL=file.gguf for a real one)"
fi
address=${ADDRESS:-127.0.0.1:8080}
cat <<EOF2
serving $model on http://$address (a page for browsers is there too); Ctrl-C ends. Try:
  curl -N http://$address/generate -d '{"prompt": "Once upon a time", "max_tokens": 64}'
  curl http://$address/tokenize -d '{"content": "Once upon a time"}'
  curl http://$address/logits -d '{"prompt": "Once upon a", "top": 5}'
  curl http://$address/model
EOF2
exec "$binary" --model "$model" --listen "$address"
