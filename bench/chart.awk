# Horizontal bars as SVG: decode of every format in % of a plain read, then tokens per second against the peer.
# Input: kernels.tsv and tokens.tsv as bench/run.sh writes them, separated by tabs.
function bar(label, value, scale, text, colour)
{
    bars = bars sprintf("<text x=\"190\" y=\"%d\" text-anchor=\"end\">%s</text>", y + 11, label)
    bars = bars sprintf("<rect x=\"200\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>", y, value * scale, colour)
    bars = bars sprintf("<text x=\"%.1f\" y=\"%d\">%s</text>\n", 206 + value * scale, y + 11, text)
    y += 18
}
function title(text)
{
    y += 10
    bars = bars sprintf("<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y + 11, text)
    y += 20
}
BEGIN { y = 0 }
/^#/ { next }
FNR == 1 {
    title(FILENAME ~ /kernels/ ? "Decode, one thread: GB/s (bar: % of a plain read)" \
                               : "Tokens per second (bar: llama.cpp = 1 where it was measured)")
    next
}
FILENAME ~ /kernels/ { bar($1, $3, 3, $2 " GB/s, " $3 " %", "#4878a8"); next }
{
    name = $1
    sub(/\.gguf$/, "", name)
    if ($6 == "-")
        bar(name " " $2, 0, 1, $3 " tok/s", "#4878a8")
    else
        bar(name " " $2, $6 > 8 ? 8 : $6, 60, $3 " tok/s, llama.cpp " $5 ": " $6 " times", "#5a9a68")
}
END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", y + 10
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n", bars
}
