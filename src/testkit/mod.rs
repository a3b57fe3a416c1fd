//! Edge. Tools for tests and benchmarks: a load test that checks its results, servers that fail on purpose,
//! and the bodies of the fuzz targets.

pub mod faults;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod load_test;
