//! Digests of what access rules and tokens mean, without the order in which the files have it.

use ring::digest::{Context, SHA256};

/// Returns the digest of a set.
pub(super) fn digest_of_all(mut all: Vec<Vec<u8>>) -> [u8; 32] {
    all.sort_unstable();
    all.dedup();
    digest_in_order(&all)
}

/// Returns the digest of a list.
pub(super) fn digest_in_order(all: &[impl AsRef<[u8]>]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for bytes in all.iter().map(AsRef::as_ref) {
        context.update(&(bytes.len() as u64).to_le_bytes());
        context.update(bytes);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}
