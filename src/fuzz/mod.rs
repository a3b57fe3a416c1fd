//! Bodies of fuzz targets: whatever bytes come from outside, and whatever happens to a datacenter in whatever order.
//!
//! A body is a function of bytes that must return. cargo-fuzz calls it from `fuzz/`, where the coverage leads it on; the
//! tests here call it with the committed corpus and with random changes of valid bytes, so that it also runs where there is
//! no fuzzer. It answers whether the bytes were taken for what they should be: a corpus of which nothing is taken tests
//! nothing.
//!
//! Only in tests and with the feature `fuzzing`: no server has any of this in it.

mod choices;
mod decoders;
mod forge;
mod forge_calls;
mod happened;
mod sequence;
#[cfg(test)]
mod tests;

pub use decoders::TARGETS;
pub use happened::Happened;
pub use sequence::sequence;

/// What a target is: its name, in `fuzz/fuzz_targets` and `fuzz/corpus`, and its body.
pub type Target = (&'static str, fn(&[u8]) -> bool);

/// Runs the body of a target by its name: for `fuzz/fuzz_targets`.
///
/// # Panics
/// When there is no such target; and when the body finds a fault, which is what it is for.
pub fn run(name: &str, data: &[u8]) {
    let (_, body) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target has a body");
    body(data);
}
