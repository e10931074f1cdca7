#!/bin/sh
# Runs suites in MODE=coverage and reports what they reach: run.sh SUITE...
cd "$(dirname "$0")/../.." || exit 1
find build/coverage -name '*.gcda' -delete
sh tests/run.sh coverage "$@" && sh tests/coverage/report.sh
