#!/bin/sh
# `make run`: serves a model on 127.0.0.1:8080, asks it something on every route and shows question and answer.
# serve.sh BINARY [MODEL]    without MODEL the demo model; ADDRESS=host:port listens elsewhere
binary=$1
root=$(cd "$(dirname "$0")/.." && pwd)
model=${2:-$root/tests/models/fables-q8_0.gguf}
address=${ADDRESS:-127.0.0.1:8080}

# Otherwise the questions below would go to whoever is there.
if curl -s -o /dev/null "http://$address/"; then
    echo "something answers at $address already; ADDRESS=127.0.0.1:8081 make run serves elsewhere" >&2
    exit 1
fi
"$binary" --model "$model" --listen "$address" --log-level warn &
daemon=$!
trap : INT # Ctrl-C reaches the daemon itself, which ends in order
trap 'kill -TERM $daemon' TERM
until curl -sf -o /dev/null "http://$address/ready"; do
    kill -0 $daemon 2>/dev/null || { wait $daemon; exit $?; }
    curl -s -o /dev/null --retry 1 --retry-delay 1 --retry-all-errors "http://$address/ready"
done

ask() {
    printf '\n$ curl%s http://%s%s' "$1" "$address" "$2"
    if [ -n "$3" ]; then
        printf " -d '%s'\n" "$3"
        curl -sS -N "http://$address$2" -d "$3"
    else
        printf '\n'
        curl -sS "http://$address$2" | head -n 6
    fi
    echo
}
ask ' -N' /generate '{"prompt": "A fox was thirsty", "max_tokens": 12}'
ask '' /tokenize '{"content": "A fox was thirsty", "with_pieces": true}'
ask '' /detokenize '{"tokens": [361, 429]}'
ask '' /logits '{"prompt": "A fox was", "top": 3}'
ask '' /v1/completions '{"prompt": "The owl who knew", "max_tokens": 16}'
ask '' /model
ask '' /health
ask '' /ready
ask '' /metrics
printf '\nserving %s on http://%s (a page for browsers is there too); Ctrl-C ends\n' "$model" "$address"
wait $daemon
status=$?
# A signal interrupts the first wait; the daemon's own status is what counts.
kill -0 $daemon 2>/dev/null && { wait $daemon; status=$?; }
exit $status
