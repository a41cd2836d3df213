//! The migrations are part of the binary: a new one must make a new binary.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
