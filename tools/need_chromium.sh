#!/bin/sh
# Makes sure that there is a Chromium for `make test-browser`: on Debian and its relatives it is
# installed, with a font for Chinese, where it is missing and we may. H2AMS_CHROMIUM names another.
set -eu

if [ -n "${H2AMS_CHROMIUM:-}" ]; then
    [ -x "$H2AMS_CHROMIUM" ] && exit 0
    echo "test-browser: H2AMS_CHROMIUM=$H2AMS_CHROMIUM is no program" >&2
    exit 1
fi
command -v chromium >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "test-browser: no chromium; install one, or name it in H2AMS_CHROMIUM" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "test-browser: no chromium; run: sudo apt-get install chromium fonts-droid-fallback" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends chromium fonts-droid-fallback
