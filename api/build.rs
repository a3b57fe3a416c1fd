//! Generates the API from its .proto, without a protobuf compiler on the machine.

use std::env;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "proto/geolock/v1/geolock.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    let is_for_server = env::var_os("CARGO_FEATURE_SERVER").is_some();
    // Bytes fields share the buffer of the message that they came in; maps are shown in order.
    let generator = tonic_prost_build::configure().build_server(is_for_server).bytes(".").btree_map(".");
    generator.compile_fds(files)?;
    Ok(())
}
