#!/bin/sh
# Runs suites and adds up their counts: run.sh "MODE ..." SUITE...
# A suite is tests/unit/test_x.c, or build/MODE/tests/unit/test_x; its last line reads "x: N passed, N failed, N skipped".
# A suite that ends without that line (a crash) counts as one failure. Ends with the sum over all suites.
modes=$1
shift
passed=0 failed=0 skipped=0
root=$(cd "$(dirname "$0")/.." && pwd)
export GGUFD_ROOT="$root" GGUFD_SHARED="${GGUFD_SHARED:-$root/../shared}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:handle_segv=1}"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for mode in $modes; do
    export GGUFD_MODE="$mode" GGUFD_BINARY="$root/build/$mode/ggufd" GGUFD_BUILD="$root/build/$mode"
    for suite in "$@"; do
        program=${suite%.c}
        case $program in build/*) ;; *) program=build/$mode/$program ;; esac
        start=$(date +%s)
        "$root/$program" >"$out" 2>&1
        code=$?
        last=$(grep -aE '^[a-z0-9_]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -n 1)
        grep -av '^100%' "$out" | grep -aE ':[EF]:|^skipped|^note|ERROR|SUMMARY|runtime error' | head -n 40
        if [ -z "$last" ]; then
            failed=$((failed + 1))
            echo "FAILED $mode $program: ended with status $code and no result line"
            tail -n 20 "$out"
            continue
        fi
        set_counts=$(echo "$last" | sed 's/.*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped/\1 \2 \3/')
        read -r p f s <<EOF
$set_counts
EOF
        [ "$code" != 0 ] && [ "$f" = 0 ] && f=1
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        echo "$mode $last ($(($(date +%s) - start)) s)"
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
