#!/usr/bin/env python3
"""unicode.txt -> unicode_table.inc: make_unicode.py < unicode.txt > unicode_table.inc

Two tables: runs of characters that belong to the same sets (first character << 8 | class), and the sets of each class.
White space outside ASCII belongs to no literal set: the reference replaces it before it matches."""
import sys

CATEGORIES = set("L N M P S WS ALL".split())
LAST = 0x10FFFF


def read(lines):
    sets = {}
    for line in lines:
        if line.startswith("#"):
            continue
        name, *ranges = line.split()
        for r in ranges:
            low, _, high = r.partition("-")
            sets.setdefault(name, []).append((int(low, 16), int(high or low, 16)))
    return sets


def membership(sets):
    of = [()] * (LAST + 1)
    blank = {c for low, high in sets["WS"] for c in range(low, high + 1) if c >= 0x80}
    for name, ranges in sets.items():
        for low, high in ranges:
            for c in range(low, high + 1):
                if name in CATEGORIES or c not in blank:
                    of[c] += (name,)
    return of


def main():
    of = membership(read(sys.stdin))
    classes, runs = {}, []
    for c, names in enumerate(of):
        number = classes.setdefault(names, len(classes))
        if not runs or runs[-1] & 0xFF != number:
            runs.append(c << 8 | number)
    assert len(classes) <= 256
    print("/* Made by make_unicode.py from unicode.txt: do not edit. */")
    print("static const uint32_t unicode_atoms[] = {")
    for names in classes:
        print("    " + " | ".join("ATOM_" + n for n in names) + ",")
    print("};")
    print("static const uint32_t unicode_runs[] = {")
    for i in range(0, len(runs), 8):
        print("    " + " ".join("0x%08x," % r for r in runs[i:i + 8]))
    print("};")


main()
