//! Bodies of fuzz targets: any bytes from outside, and any events at a datacenter in any order.
//!
//! A body is a function of bytes that must return. cargo-fuzz calls it from `fuzz/`, guided by coverage; the
//! tests here call it with the committed corpus and with random changes of valid bytes, so that it also runs
//! without a fuzzer. It returns true if the bytes were accepted: a corpus of which nothing is accepted tests
//! nothing.
//!
//! Only in tests and with the feature `fuzzing`: no server contains any of this.

mod choices;
mod decoders;
mod forge;
mod forge_calls;
mod happened;
mod native_frames;
mod sequence;
#[cfg(test)]
mod tests;

pub use decoders::TARGETS;
pub use happened::Happened;
pub use sequence::sequence;

/// A target: its name, in `fuzz/fuzz_targets` and `fuzz/corpus`, and its body.
pub type Target = (&'static str, fn(&[u8]) -> bool);

/// Runs the body of a target by its name: for `fuzz/fuzz_targets`.
///
/// # Panics
/// If there is no such target, or if the body finds a fault.
pub fn run(name: &str, data: &[u8]) {
    let (_, body) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target has a body");
    body(data);
}
