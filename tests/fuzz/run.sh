#!/bin/sh
# Runs fuzzers one after another: run.sh SECONDS FUZZER...
# Each starts from its seeds in tests/fuzz/seeds/NAME and keeps what it learns in build/fuzz/corpus/NAME. An input that
# breaks something is left as build/fuzz/NAME-*; make it a test of the suite that owns the code.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=$1
shift
cd "$root"
[ $# -gt 0 ] || { echo "no such fuzzer" >&2; exit 1; }
for fuzzer in "$@"; do
    name=$(basename "$fuzzer")
    name=${name#fuzz_}
    mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/seeds/$name"
    # Seconds of one input: more where a whole daemon answers, which a busy machine may keep waiting.
    timeout=5
    [ "$name" != http ] || timeout=120
    echo "fuzz $name: $seconds s"
    ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 "$fuzzer" -max_total_time="$seconds" -timeout=$timeout \
        -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/$name-" \
        "build/fuzz/corpus/$name" "tests/fuzz/seeds/$name" 2>&1 | tee "build/fuzz/$name.log" | tail -n 40
    # The fuzzer's status is lost in the pipe; what it found is not.
    if grep -qE 'ERROR: |SUMMARY: ' "build/fuzz/$name.log"; then
        exit 1
    fi
done
