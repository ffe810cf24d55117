#!/bin/sh
# Everything that `make demo` and `make test` need, on a machine that has only Python 3.11+ and make:
# a virtual environment of our own, the locked dependencies, Java 17+. Quick when it is all there.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$1" >&2; }
fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

# Root on Debian or Ubuntu may install; anybody else is told what to run.
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
apt_install() {
    say "installing $* with apt"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
    for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$name" ] || continue
        if "$name" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
}

java_version() { # the major version of a java command, 0 when it is none
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1 | grep . || echo 0
}

find_java() {
    for name in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
        [ "$(java_version "$name")" -ge 17 ] && return 0
    done
    return 1
}

if [ -f .venv/.begun ]; then # and never ended: some package may be there by half
    say "the last set-up was cut off: .venv is made anew"
    rm -rf .venv
fi
if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    [ -n "$python" ] || fail "Python 3.11 or newer is needed, and was not found (set PYTHON=/path/to/python3)"
    say "making .venv with $("$python" --version)"
    if ! "$python" -m venv .venv >/dev/null 2>&1; then
        rm -rf .venv
        can_apt || fail "python3 has no venv module; on Debian or Ubuntu run: apt-get install python3-venv"
        apt_install python3-venv
        "$python" -m venv .venv
    fi
fi

if [ ! -f .venv/.locked ] || ! cmp -s requirements.lock .venv/.locked; then
    say "installing the locked dependencies (a few minutes the first time)"
    touch .venv/.begun
    # What builds the native reader comes first: cargo has work for the cores while the others are downloaded.
    sed -n '/^maturin==/,/[^\\]$/p' requirements.lock >.venv/.maturin
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/.maturin
    sh scripts/native.sh build &
    building=$!
    # The lock is whole, so nothing is left to resolve. A resolver would look at releases that are newer than the lock
    # and stop: pip refuses an extra (coverage[toml]) whose newest version has no hash here.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
    cp requirements.lock .venv/.locked
    rm -f .venv/.project .venv/.begun
fi
if [ ! -f .venv/.project ] || ! cmp -s pyproject.toml .venv/.project; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    cp pyproject.toml .venv/.project
fi

if ! find_java; then
    can_apt || fail "Java 17 or newer is needed; on Debian or Ubuntu run: sudo apt-get install openjdk-17-jre-headless"
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless
    find_java || fail "Java 17 or newer is needed, and apt did not bring it"
fi

if [ -n "${building:-}" ]; then wait "$building"; else sh scripts/native.sh build; fi
sh scripts/native.sh install
