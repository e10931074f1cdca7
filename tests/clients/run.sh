#!/bin/sh
# make test-clients: the npm package "openai" and headless Chromium against the built daemon. Installs what it needs
# (Debian's nodejs, npm and chromium; npm packages into build/clients).
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v node >/dev/null && command -v npm >/dev/null || sh "$root/tests/deps.sh" nodejs npm
command -v chromium >/dev/null || sh "$root/tests/deps.sh" chromium
mkdir -p "$root/build/clients"
cp "$root"/tests/clients/*.mjs "$root/tests/clients/package.json" "$root/build/clients/"
cd "$root/build/clients"
[ -d node_modules/openai ] && [ -d node_modules/playwright-core ] || npm install --silent --no-audit --no-fund
status=0
node openai.mjs || status=1
node page.mjs || status=1
exit $status
