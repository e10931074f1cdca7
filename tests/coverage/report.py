"""Table of the lines and branches that were reached, a folder and a file, from what `gcov --json-format` prints.

Prints the folders and writes all of it to build/coverage/table.txt. Fails when a folder of LIMITS is below its limit, or when one of its lines is not reached and has no reason in
tests/coverage/unreached.txt. Says which reasons no line needs any more, and writes lines with a branch that was never
taken to build/coverage/branches.txt. Not counted: the branches of assert(), which only our own code could take."""
import collections
import json
import os
import sys

LIMITS = {"engine/gguf": (95, 85), "engine/tokenizer": (95, 85), "proto": (95, 85), "daemon": (95, 85)}
REASONS = "tests/coverage/unreached.txt"
TABLE = "build/coverage/table.txt"
BRANCHES = "build/coverage/branches.txt"


class Line:
    def __init__(self):
        self.count, self.branches = 0, []

    def merge(self, line):  # a header's line comes once for each file that includes it
        counts = [b["count"] for b in line["branches"]]
        self.count += line["count"]
        self.branches += [0] * (len(counts) - len(self.branches))
        for i, count in enumerate(counts):
            self.branches[i] += count


class Sum:
    def __init__(self):
        self.lines = self.lines_reached = self.branches = self.branches_taken = 0

    def add(self, line):
        self.lines += 1
        self.lines_reached += line.count > 0
        self.branches += len(line.branches)
        self.branches_taken += sum(count > 0 for count in line.branches)

    def percent(self):
        return 100 * self.lines_reached / (self.lines or 1), 100 * self.branches_taken / (self.branches or 1)

    def row(self, name):
        lines, branches = self.percent()
        return (f"{name:<30}{self.lines_reached:>6} of {self.lines:<6}{lines:5.1f} %"
                f"{self.branches_taken:>8} of {self.branches:<6}{branches if self.branches else 100:5.1f} %")


def read_counters(stream):
    files = collections.defaultdict(lambda: collections.defaultdict(Line))
    for document in stream:
        for file in json.loads(document)["files"]:
            if file["file"].startswith(("engine/", "proto/", "daemon/")):
                for line in file["lines"]:
                    files[file["file"]][line["line_number"]].merge(line)
    return files


def read_source(name):
    with open(name, encoding="utf-8") as f:
        return [line.strip() for line in f.read().split("\n")]


def read_reasons():
    reasons = {}
    for number, row in enumerate(read_source(REASONS), 1):
        if row and not row.startswith("#"):
            where, separator, reason = row.rpartition(" // ")
            file, colon, text = where.partition(": ")
            if not (separator and colon and reason.strip()):
                sys.exit(f"{REASONS}:{number}: not FILE: TEXT OF THE LINE // REASON")
            reasons[file, text.strip()] = number
    return reasons


def write_table(files):
    folders = collections.defaultdict(Sum)
    rows = collections.defaultdict(list)
    for name in sorted(files):
        folder, total = os.path.dirname(name), Sum()
        for line in files[name].values():
            folders[folder].add(line)
            total.add(line)
        rows[folder].append(total.row("  " + os.path.basename(name)))
    with open(TABLE, "w", encoding="utf-8") as table:
        for folder in sorted(folders):
            print("\n".join([folders[folder].row(folder)] + rows[folder]), file=table)
    return folders


def print_limits(folders):
    failed = False
    print(f"{'':<30}{'lines':>13}{'branches':>25}")
    for folder in sorted(folders):
        limits = LIMITS.get(folder)
        low = limits and any(p < limit for p, limit in zip(folders[folder].percent(), limits))
        print(folders[folder].row(folder) + (f"  below {limits[0]} % or {limits[1]} %" if low else ""))
        failed |= bool(low)
    return failed


def check_lines(files):
    reasons, used, n_excused, n_unexplained = read_reasons(), set(), 0, 0
    with open(BRANCHES, "w", encoding="utf-8") as branches:
        for name in sorted(files):
            source = read_source(name)
            for number, line in sorted(files[name].items()):
                text = source[number - 1]
                if line.count == 0 and os.path.dirname(name) in LIMITS:
                    if (name, text) in reasons:
                        used.add((name, text))
                        n_excused += 1
                    else:
                        print(f"not reached, without a reason: {name}:{number}: {text}")
                        n_unexplained += 1
                elif line.count and 0 in line.branches:
                    print(f"{name}:{number}: {text}  {line.branches}", file=branches)
    for (file, text), number in reasons.items():
        if (file, text) not in used:
            print(f"{REASONS}:{number}: a test reaches the line, or it is gone: {file}: {text}")
    print(f"{n_excused} lines are not reached for a reason, {n_unexplained} without one; files: {TABLE}; branches never taken: {BRANCHES}")
    return n_unexplained > 0


def main():
    files = read_counters(sys.stdin)
    for name, lines in files.items():
        source = read_source(name)
        if max(lines) > len(source):
            sys.exit(f"{name} has changed since it was compiled")
        for number, line in lines.items():
            if "assert(" in source[number - 1]:
                line.branches = []
    folders = write_table(files)
    failed = print_limits(folders)
    sys.exit(check_lines(files) or failed)


main()
