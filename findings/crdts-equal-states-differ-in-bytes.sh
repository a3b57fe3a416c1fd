#!/usr/bin/env bash
# crdts 7.3.2: two replicas that have converged compare equal and are not the same bytes.
#
# Expected: replicas of a state-based CRDT that are `==` after a merge read the same and encode to the same
# bytes, so that a hash of the bytes can compare replicas.
# Seen: an `MVReg` keeps concurrent values in the order in which they arrived, so `read().val` and the bytes
# of two equal registers differ. An `Orswot` keeps its members in a `HashMap` with a random seed for each
# set, so two sets that were built by the same calls in the same order differ in their bytes, even within
# one process.
# What follows: hash the sorted content of a value, not its encoding; and sort what `MVReg::read` returns.
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
crdts = "=7.3.2"
serde = "=1.0.229"
TOML
cat > src/main.rs << 'RUST'
use crdts::{CmRDT, CvRDT, MVReg, Orswot};

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("it can be encoded")
}

fn main() {
    let written = |value: &'static str, actor: u8| {
        let mut register: MVReg<&str, u8> = MVReg::new();
        let op = register.write(value, register.read_ctx().derive_add_ctx(actor));
        register.apply(op);
        register
    };
    let (mut a, mut b) = (written("a", 1), written("b", 2));
    a.merge(written("b", 2));
    b.merge(written("a", 1));
    println!("registers: equal {}, same bytes {}", a == b, bytes(&a) == bytes(&b));
    println!("they read {:?} and {:?}", a.read().val, b.read().val);

    let set_of_twenty = || {
        let mut set: Orswot<u32, u8> = Orswot::new();
        for member in 0..20 {
            let op = set.add(member, set.read_ctx().derive_add_ctx(1));
            set.apply(op);
        }
        set
    };
    let (a, b) = (set_of_twenty(), set_of_twenty());
    println!("sets: equal {}, same bytes {}", a == b, bytes(&a) == bytes(&b));
}
RUST
seen=$(cargo run --quiet)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - << 'SEEN'
registers: equal true, same bytes false
they read ["a", "b"] and ["b", "a"]
sets: equal true, same bytes false
SEEN
