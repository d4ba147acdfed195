#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The koord-rt Authors

# Runs make demo, or the target that is given, as a new user does: in a Debian that has make, gcc, git, this machine's Go and nothing else,
# from a clone of what is committed. `make demo-fresh` calls it. Root; about 15 minutes, most of them for building containerd. Nothing
# stays: the mounts are in a namespace that ends with it, the folder is removed.
set -euo pipefail
target=${1:-demo} suite=${SUITE:-trixie} mirror=${MIRROR:-http://deb.debian.org/debian}
repository=$(git rev-parse --show-toplevel)
go=$(go env GOROOT)

if [ -z "${FRESH_ROOT:-}" ]; then
	command -v debootstrap >/dev/null || apt-get install -y debootstrap
	FRESH_ROOT=$(mktemp -d -p /var/tmp)
	export FRESH_ROOT
	trap 'rm -rf --one-file-system "$FRESH_ROOT"' EXIT
	echo "fresh: Debian $suite with make, gcc and git in $FRESH_ROOT"
	debootstrap --variant=minbase --include=make,gcc,libc6-dev,git,ca-certificates "$suite" "$FRESH_ROOT" "$mirror" >"$FRESH_ROOT.log" 2>&1 ||
		{ tail "$FRESH_ROOT.log" >&2; exit 1; }
	rm -f "$FRESH_ROOT.log"
	unshare --mount --pid --fork --kill-child "$0" "$target"
	exit
fi

cd "$FRESH_ROOT"
# runc wants a root that is a mount; a chroot's folder is none.
mount --bind . .
cd "$FRESH_ROOT"
mkdir -p "./$go" src
mount --bind "$go" "./$go"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
cp /etc/resolv.conf /etc/hosts etc/
# Whom this machine trusts beside the usual ones: a site's own proxy, say.
find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t usr/local/share/ca-certificates {} +
chroot . update-ca-certificates >/dev/null 2>&1
git clone -q "$repository" src/koord-rt
exec env -i HOME=/root TERM="${TERM:-dumb}" PATH="$go/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
	chroot . sh -c 'cd /src/koord-rt && exec make "$1"' sh "$target"
