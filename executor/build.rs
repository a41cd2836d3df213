//! Compiles the clients' protocol without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/inference.proto");
    let descriptors = protox::compile(["proto/inference.proto"], ["proto"])?;
    // Raw tensors stay where the message came in; they are not copied to be read.
    let raw = [".inference.ModelInferRequest.raw_input_contents", ".inference.ModelInferResponse.raw_output_contents"];
    let builder = raw
        .iter()
        .fold(tonic_prost_build::configure().codec_path("crate::gateway::codec::ScannedCodec"), |builder, field| {
            builder.bytes(field)
        });
    builder.compile_fds(descriptors)?;
    Ok(())
}
