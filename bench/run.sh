#!/bin/sh
# All benchmarks: bench/run.sh BUILD [PEERDIR]. Called by `make bench`. Results: build/bench/*.tsv, report.md, chart.svg.
# Quick by default (a minute or two); BENCH=full measures every format, every model and long contexts.
set -eu
build=$1
peer=${2:-}
out=$(dirname "$build")/bench
mode=${BENCH:-quick}
mkdir -p "$out"

if [ "$mode" = full ]; then
    kernels="--full"
    models="1B:Q4_K_M 1B:Q8_0 1B:Q4_0 1B:Q6_K 1B:Q5_K_M 1B:F16 0.5B:Q4_K_M 0.5B:Q8_0 3B:Q4_K_M"
    tokens="--rounds 5 --steps 32 --prefill 32 --prefill 512 --prefill 4096 --depth 0 --depth 4096 --depth 8192"
elif [ "$mode" = acceptance ]; then
    kernels="--full Q8_0 Q4_0 Q4_K Q5_K Q6_K F16"
    models="1B:Q4_K_M 1B:Q8_0 1B:Q4_0 0.5B:Q4_K_M"
    tokens="--rounds 5 --steps 32 --prefill 512 --depth 0"
elif [ "$mode" = quick ]; then
    kernels="Q8_0 Q4_0 Q4_K Q6_K"
    models="0.5B:Q4_K_M"
    tokens="--rounds 3 --steps 16 --prefill 128 --depth 0"
else
    echo "bench/run.sh: BENCH is \"$mode\", must be quick, acceptance or full" >&2
    exit 2
fi

echo "kernels ..." >&2
# shellcheck disable=SC2086
"$build/bench/kernels" $kernels | tee "$out/kernels.tsv"

printf 'model\twhat\ttok/s\t%% of read\tpeer tok/s\tratio\n' >"$out/tokens.tsv"
for entry in $models; do
    shape=${entry%%:*} mix=${entry##*:}
    file=$out/$shape-$mix.gguf
    if [ ! -s "$file" ]; then
        echo "writing $file ..." >&2
        "$build/bench/model_writer" "$shape" "$mix" "$file.part"
        mv "$file.part" "$file"
    fi
    # shellcheck disable=SC2086
    "$build/bench/tokens" ${peer:+--peer "$peer"} $tokens "$file" | tee -a "$out/tokens.tsv"
done

# Tables as markdown, and the shares and ratios as bars.
{
    grep '^#' "$out/kernels.tsv" | sed 's/^# /- /'
    for table in kernels tokens; do
        printf '\n'
        grep -v '^#' "$out/$table.tsv" | awk -F '\t' '
            { line = "|"; for (i = 1; i <= NF; i++) line = line " " $i " |"; print line }
            NR == 1 { line = "|"; for (i = 1; i <= NF; i++) line = line (i == 1 ? " --- |" : " ---: |"); print line }'
    done
} >"$out/report.md"
awk -F '\t' -f bench/chart.awk "$out/kernels.tsv" "$out/tokens.tsv" >"$out/chart.svg"
echo "report: $out/report.md, chart: $out/chart.svg" >&2
