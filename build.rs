//! Generates the client API from its .proto, without a protobuf compiler on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "proto/geolock/v1/geolock.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    // Bytes fields share the buffer of the message that they came in; maps are shown in order.
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(files)?;
    Ok(())
}
