//! See `src/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| geolock::fuzz::run("native_frames", data));
