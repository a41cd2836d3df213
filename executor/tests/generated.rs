//! The committed messages of the agents, the ingress and the autoscalers are those of their `.proto` files. They are
//! committed because compiling their compiler takes longer than compiling the agent.
//!
//! To write them again, when a `.proto` file has changed:
//!
//! ```sh
//! APPORTION_WRITE=1 cargo test -p apportion-executor --test generated
//! ```

use std::path::{Path, PathBuf};
use tonic_prost_build::Builder;

/// A `.proto` file, the package that it defines, and the file of its messages, in the folder of this crate.
struct Source {
    proto: &'static str,
    package: &'static str,
    messages: &'static str,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Checks that the committed messages are those of the `.proto` file, or writes them if that is asked for.
fn check(source: &Source, settings: impl FnOnce(Builder) -> Builder) {
    let proto = here(source.proto);
    let descriptors = protox::compile([&proto], [proto.parent().expect("its folder")]).expect("a valid .proto file");
    let out = tempfile::tempdir().expect("a folder");
    let builder = settings(tonic_prost_build::configure().out_dir(out.path()));
    builder.compile_fds(descriptors).expect("messages");
    let made = std::fs::read_to_string(out.path().join(format!("{}.rs", source.package))).expect("the messages");
    let committed = here(source.messages);
    if std::env::var_os("APPORTION_WRITE").is_some() {
        std::fs::write(&committed, &made).expect("the messages can be written");
    }
    let are_same = std::fs::read_to_string(&committed).expect("the committed messages") == made;
    assert!(are_same, "{} is not what {} says: see the head of this test", committed.display(), proto.display());
}

#[test]
fn the_control_planes_messages_are_those_of_their_proto_file() {
    let source =
        Source { proto: "protocol/proto/apportion.proto", package: "apportion.v1", messages: "protocol/src/v1.rs" };
    check(&source, |builder| builder);
}

#[test]
fn the_clients_messages_are_those_of_their_proto_file() {
    let source = Source { proto: "proto/inference.proto", package: "inference", messages: "src/gateway/proto.rs" };
    check(&source, |builder| {
        // Raw tensors stay where the message came in; they are not copied to be read.
        let raw = ["ModelInferRequest.raw_input_contents", "ModelInferResponse.raw_output_contents"];
        let builder = raw.iter().fold(builder, |builder, field| builder.bytes(format!(".inference.{field}")));
        builder.codec_path("crate::gateway::codec::CheckedCodec")
    });
}

#[test]
fn the_autoscalers_messages_are_those_of_their_proto_file() {
    let source = Source {
        proto: "../api/scalers/proto/externalscaler.proto",
        package: "externalscaler",
        messages: "../api/scalers/src/proto.rs",
    };
    check(&source, |builder| builder);
}
