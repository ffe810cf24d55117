#!/bin/sh
# The crates that the native reader is built from. native/crates.list has the name, version and checksum of each, those that
# others bring with them too.
# `lock` makes native/Cargo.lock of exactly these; 2 if that cannot be done. `update` resolves anew and writes the list.
set -eu
cd "$(dirname "$0")/../native"

say() { printf 'crates: %s\n' "$1" >&2; }

locked() { # what Cargo.lock has, written as the list is
    awk 'BEGIN { RS = ""; FS = "\n" }
        /^\[\[package\]\]/ {
            split("", has)
            for (i = 1; i <= NF; i++) if (split($i, part, "\"") == 3) has[part[1]] = part[2]
            if ("source = " in has) print has["name = "], has["version = "], has["checksum = "]
        }' Cargo.lock | LC_ALL=C sort
}

lock() {
    if [ -f Cargo.lock ] && locked | cmp -s - crates.list && cargo update --quiet --workspace --locked --offline 2>/dev/null; then
        return 0
    fi
    cargo generate-lockfile --quiet
    # The registry is named in the lock by an address that only cargo needs to know.
    source=$(sed -n 's/^source = //p' Cargo.lock | LC_ALL=C sort -u)
    {
        printf 'version = 4\n'
        while read -r name version checksum; do
            printf '\n[[package]]\nname = "%s"\nversion = "%s"\nsource = %s\nchecksum = "%s"\n' \
                "$name" "$version" "$source" "$checksum"
        done <crates.list
    } >Cargo.lock
    # Fills in who depends on whom; what is locked stays as it is, unless it is not needed or not there.
    if cargo update --quiet --workspace && locked | diff crates.list - >&2; then return 0; fi
    rm -f Cargo.lock
    say "refused: the crates are not those of native/crates.list (after a change of native/Cargo.toml: sh scripts/crates.sh update)"
    return 2
}

update() {
    cargo generate-lockfile --quiet
    locked >crates.list
}

"$1"
