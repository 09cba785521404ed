//! Makes Rust of the .proto file, with the feature `grpc`. It is read in Rust: no `protoc` is needed.

#[cfg(feature = "grpc")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "proto/leasehold/v1/leasehold.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let mut compiler = protox::Compiler::new(["proto"])?;
    // With the comments: they become rustdoc, and reflection shows them.
    compiler.include_imports(true).include_source_info(true).open_file(PROTO)?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("leasehold.v1.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .build_transport(false)
        // Commands and replies are moved about by the million: what is large in them stays where it is.
        .boxed(".leasehold.v1.Command.ask.acquire")
        .boxed(".leasehold.v1.Reply.answer.problem")
        .boxed(".leasehold.v1.Reply.answer.tested")
        .boxed(".leasehold.v1.Reply.answer.checked")
        .boxed(".leasehold.v1.Reply.answer.lock")
        .codec_path("crate::grpc::MessageCodec")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

#[cfg(not(feature = "grpc"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
