//! Makes the messages and the client of etcd's protocol, with the feature `etcd`. No `protoc` is needed.

#[cfg(feature = "etcd")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/etcd.proto");
    let descriptors = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}

#[cfg(not(feature = "etcd"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
