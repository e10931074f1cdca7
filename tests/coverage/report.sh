#!/bin/sh
# What the counters below build/coverage say.
cd "$(dirname "$0")/../.." || exit 1
find build/coverage/engine build/coverage/proto build/coverage/daemon -name '*.gcno' -exec \
    gcov --json-format --stdout --branch-probabilities {} + 2>/dev/null | python3 tests/coverage/report.py
