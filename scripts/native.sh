#!/bin/sh
# The native reader, where cargo is there to build it. Everything works without it, several times slower.
# `build` makes the wheel and needs no more than maturin; `install` puts it into .venv. It is kept in the user's cache by
# what it was built from, so that it is built once.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$1" >&2; }

version=$(find native \( -name target -o -name fuzz -o -name examples \) -prune -o \( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name crates.list \) -type f -print |
    LC_ALL=C sort | xargs cat scripts/native.sh scripts/crates.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/forebay/native/$version-$(uname -m)
[ "$(cat .venv/.native 2>/dev/null || true)" != "$version" ] || exit 0

build() {
    ! ls "$cache"/*.whl >/dev/null 2>&1 || return 0
    if ! command -v cargo >/dev/null 2>&1; then
        say "no cargo: the native reader is not built, records are decoded in Python (install Rust 1.88+ and run make setup again)"
        return 0
    fi
    say "building the native reader (a minute or two, once)"
    mkdir -p "$cache"
    # Crates other than those of the list are refused; whatever else goes wrong, Python takes its place.
    locked=0
    sh scripts/crates.sh lock >"$cache/build.log" 2>&1 || locked=$?
    if [ "$locked" = 2 ]; then
        cat "$cache/build.log" >&2
        exit 1
    fi
    if [ "$locked" != 0 ] || ! .venv/bin/maturin build --quiet --release --locked --manifest-path native/Cargo.toml \
        --out "$cache.$$" >>"$cache/build.log" 2>&1; then
        tail -n 20 "$cache/build.log" >&2
        say "the native reader could not be built (all of it: $cache/build.log); records are decoded in Python"
        rm -rf "$cache.$$"
        return 0
    fi
    mv "$cache.$$"/*.whl "$cache"/
    rmdir "$cache.$$"
}

install() {
    ls "$cache"/*.whl >/dev/null 2>&1 || return 0 # why not, was said when it was built
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$cache"/*.whl
    printf '%s' "$version" >.venv/.native
}

"$1"
