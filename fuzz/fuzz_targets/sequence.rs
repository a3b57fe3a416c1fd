//! See `src/testkit/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| geolock::testkit::fuzz::run("sequence", data));
