#!/bin/sh
# The linker's options for the functions that the rows of wrap.c wrap.
sed -n 's/.*__wrap_\([A-Za-z_0-9]*\)(.*/\1/p; s/^WRAP([^,]*, \([A-Za-z_0-9]*\),.*/\1/p' "$(dirname "$0")/wrap.c" |
    sort -u | sed 's/^/-Wl,--wrap=/'
