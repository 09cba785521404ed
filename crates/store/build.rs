//! Makes the messages and the client of etcd's protocol, without a protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/etcd.proto");
    if std::env::var_os("CARGO_FEATURE_ETCD").is_none() {
        return Ok(());
    }
    let descriptors = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
