#!/bin/sh
# Installs the Debian packages named as arguments that are missing; silent when none is.
missing=
for package in "$@"; do
    case $package in
    nginx-light) command -v nginx >/dev/null 2>&1 && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
run=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "missing packages:$missing; install them as root with apt-get" >&2; exit 1; }
    run=sudo
fi
echo "installing missing Debian packages:$missing (${run:+with sudo, }apt-get)"
$run apt-get update -qq || exit 1
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null || exit 1
