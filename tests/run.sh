#!/bin/sh
# Runs suites and adds up their counts: run.sh "MODE ..." SUITE...
# A suite is tests/unit/test_x.c, or build/MODE/tests/unit/test_x; its last line reads "x: N passed, N failed, N skipped".
# A suite that ends without that line (a crash) counts as one failure. Ends with what failed and the sum over all suites.
modes=$1
shift
passed=0 failed=0 skipped=0
root=$(cd "$(dirname "$0")/.." && pwd)
export GGUFD_ROOT="$root" GGUFD_SHARED="${GGUFD_SHARED:-$root/../shared}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:handle_segv=1}"
# ThreadSanitizer's reports go to files: a daemon that is killed in the end could not tell of them by its status.
# A path short enough for the names of sockets below it.
work=$(mktemp -d /tmp/ggufd-test-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
out=$work/out failures=$work/failures
export TSAN_OPTIONS="${TSAN_OPTIONS:-log_path=$work/race:exitcode=66}"
: >"$failures"

# Each failed test of a suite's output, with its message's further lines: "FAILED mode name: file:line:F:test:..."
failed_tests() {
    awk -v head="FAILED $mode $name: " '
        /^[^ ]*:[0-9]+:[EF]:/ { print head $0; left = 8; next }
        /^[a-z0-9_]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ || /^skipped / { left = 0 }
        left > 0 { print "    " $0; left-- }' "$out"
}

for mode in $modes; do
    export GGUFD_MODE="$mode" GGUFD_BINARY="$root/build/$mode/ggufd" GGUFD_BUILD="$root/build/$mode"
    for suite in "$@"; do
        program=${suite%.c}
        case $program in build/*) ;; *) program=build/$mode/$program ;; esac
        name=${program##*/test_}
        start=$(date +%s)
        mkdir "$work/tmp" # what killed children leave goes with it
        TMPDIR=$work/tmp "$root/$program" >"$out" 2>&1
        code=$?
        rm -rf "$work/tmp"
        last=$(grep -aE '^[a-z0-9_]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -n 1)
        grep -av '^100%' "$out" | grep -aE ':[EF]:|^skipped|^note|ERROR|SUMMARY|runtime error' | head -n 40
        failed_tests >"$work/now"
        races=$(cat "$work"/race.* 2>/dev/null | grep -c '^SUMMARY: ThreadSanitizer')
        if [ "$races" != 0 ]; then
            cat "$work"/race.* >&2
            cat "$work"/race.* | grep '^SUMMARY: ThreadSanitizer' | sort | uniq -c |
                sed "s|^|FAILED $mode $name: |" >>"$work/now"
            rm -f "$work"/race.*
        fi
        if [ -z "$last" ]; then
            failed=$((failed + 1))
            echo "FAILED $mode $name: ended with status $code and no result line"
            tail -n 20 "$out"
            { echo "FAILED $mode $name: ended with status $code and no result line; its last lines:"
              tail -n 5 "$out" | sed 's/^/    /'
              cat "$work/now"; } >>"$failures"
            continue
        fi
        set_counts=$(echo "$last" | sed 's/.*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped/\1 \2 \3/')
        read -r p f s <<EOF
$set_counts
EOF
        f=$((f + races))
        if [ "$code" != 0 ] && [ "$f" = 0 ]; then
            f=1
            echo "FAILED $mode $name: ended with status $code" >>"$work/now"
        fi
        cat "$work/now" >>"$failures"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        echo "$mode $last ($(($(date +%s) - start)) s)"
    done
done
cat "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
