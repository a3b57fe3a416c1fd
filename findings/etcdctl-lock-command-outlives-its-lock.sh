#!/usr/bin/env bash
# etcdctl 3.4.23 (Debian 12): the command of `etcdctl lock NAME COMMAND` runs on when its lock is lost, beside
# the command of the next holder, and `etcdctl` ends with 0. SIGTERM ends neither.
#
# Expected: the command runs while the lock is held. When the lease of the lock is gone, the command gets a
# signal, as that of `consul lock` does by its documentation, or at least the exit code tells of the loss.
# SIGTERM, which is handled, ends the command and releases the lock.
# Seen: `etcdctl` does not watch its session while the command runs. After the lease was revoked, as after a cut
# longer than its TTL, a second `etcdctl lock` gets the lock at once and its command runs from begin to end while
# the first one's still runs; the first one ends 0. SIGTERM to `etcdctl` is taken while the command runs, and
# nothing happens: the command runs to its end, the lock is held until then, and the exit code is 0.
# What follows: the exit code of a job under `etcdctl lock` says nothing about mutual exclusion, and a service
# manager that stops such a job waits until its command is done, or kills `etcdctl` and leaves the command behind.
# `geolock lock` ends its command before the lock can be granted elsewhere, with exit code 74, and passes signals on.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null; rm -rf "$folder"' EXIT
cd "$folder"
chmod 755 .
for package in etcd-client etcd-server; do
    apt-get download -qq "$package=3.4.23-4+b4" 2> /dev/null
    dpkg-deb -x "$package"_*.deb .
done
client=http://127.0.0.1:$((20000 + $$ % 20000))
peer=http://127.0.0.1:$((40000 + $$ % 20000))
usr/bin/etcd --data-dir data --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" \
    > etcd.log 2>&1 &
server=$!
etcdctl() { ETCDCTL_API=3 usr/bin/etcdctl --endpoints="$client" "$@"; }
until etcdctl endpoint health > /dev/null 2>&1; do sleep 0.1; done

# Waits until a file has a line.
has() { until grep -qx "$2" "$1" 2> /dev/null; do sleep 0.05; done; }
fail() { echo "CHANGED: $1"; exit 1; }

etcdctl lock --ttl 60 jobs -- sh -c 'echo begins; until [ -e go-on ]; do sleep 0.1; done; echo ends' > first &
first=$!
has first begins
etcdctl lease revoke "$(etcdctl lease list | tail -n 1)" > /dev/null
[ "$(etcdctl lock --ttl 60 jobs -- echo 'second ran')" = "second ran" ] || fail "the second one has no lock"
grep -q ends first && fail "the first command has ended"
kill -0 "$first" 2> /dev/null || fail "etcdctl has ended when its lock was lost"
echo "the second holder's command ran from begin to end while the first one's runs"
touch go-on
code=0; wait "$first" || code=$?
[ "$code" = 0 ] && grep -qx ends first || fail "the first one ends with $code"
echo "the first one, which had lost its lock, ends with $code"
rm go-on

etcdctl lock --ttl 60 jobs -- sh -c 'echo begins; until [ -e go-on ]; do sleep 0.1; done; echo ends' > third &
third=$!
has third begins
# The process itself, not the shell that runs the function.
process=$(pgrep -P "$third" etcdctl || echo "$third")
kill -TERM "$process"
sleep 2
kill -0 "$process" 2> /dev/null || fail "SIGTERM ends etcdctl while its command runs"
touch go-on
code=0; wait "$third" || code=$?
[ "$code" = 0 ] && grep -qx ends third || fail "after SIGTERM it ends with $code"
echo "after SIGTERM the command runs to its end, and etcdctl ends with $code"
