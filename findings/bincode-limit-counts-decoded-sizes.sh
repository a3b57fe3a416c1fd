#!/usr/bin/env bash
# bincode 2.0.1: `with_limit` does not bound what is encoded, and refuses to decode what is within the
# limit.
#
# Expected: with one configuration, `with_limit::<N>()`, encoding fails above N bytes, and what it encoded
# in at most N bytes can be decoded.
# Seen: encoding ignores the limit. Decoding does not count bytes but the sizes of the decoded numbers: 8
# for each `u64` and for each length, although a small one takes 1 byte with the variable-length encoding.
# 100 small numbers, 101 bytes, are refused under a limit of 400 bytes; the least limit that reads them is
# 808.
# What follows: compare the length of the bytes with the limit before decoding, on both sides, and give the
# decoder a budget in proportion to that length. We learnt it from a commit that was within our limits and
# that no journal could read again (src/base/wire.rs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat > Cargo.toml << 'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"

[dependencies]
bincode = { version = "=2.0.1", features = ["serde"] }
TOML
cat > src/main.rs << 'RUST'
use bincode::config::standard;
use bincode::serde::{decode_from_slice, encode_to_vec};

fn main() {
    let numbers = vec![1_u64; 100];
    let encoded = encode_to_vec(&numbers, standard().with_limit::<50>()).map(|bytes| bytes.len());
    println!("encoded with a limit of 50: {encoded:?}");
    let bytes = encode_to_vec(&numbers, standard().with_limit::<400>()).expect("101 bytes");
    let decoded = decode_from_slice::<Vec<u64>, _>(&bytes, standard().with_limit::<400>());
    println!("{} bytes decoded with a limit of 400: {decoded:?}", bytes.len());
    let decoded = decode_from_slice::<Vec<u64>, _>(&bytes, standard().with_limit::<807>());
    println!("with a limit of 807: {}", decoded.is_ok());
    let decoded = decode_from_slice::<Vec<u64>, _>(&bytes, standard().with_limit::<808>());
    println!("with a limit of 808: {}", decoded.is_ok_and(|(read, _)| read == numbers));
}
RUST
seen=$(cargo run --quiet)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - << 'SEEN'
encoded with a limit of 50: Ok(101)
101 bytes decoded with a limit of 400: Err(LimitExceeded)
with a limit of 807: false
with a limit of 808: true
SEEN
