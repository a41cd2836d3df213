//! Gives `highs-sys` the bindings in `bindings.rs` of this folder instead of generating them.
//!
//! `highs-sys` runs bindgen in its build script and offers no feature to leave it out. Bindgen loads libclang when it
//! runs, and compiling it takes longer than compiling the rest of the script. The root `Cargo.toml` puts this crate in
//! bindgen's place (`[patch.crates-io]`). It has the part of bindgen's interface that the build script of `highs-sys`
//! uses, and nothing else.
//!
//! `solver/mip/tests/bindings/main.rs` compares `bindings.rs` with the header of HiGHS that is compiled. The same file says
//! how to write `bindings.rs` again when the version of `highs-sys` changes.

use std::path::Path;

/// What `highs-sys` implements to hear of the headers that bindgen reads.
pub mod callbacks {
    /// Listens to the files and environment variables that bindgen reads. This crate reads none, so nothing is called.
    pub trait ParseCallbacks: std::fmt::Debug {
        /// A header that was named.
        fn header_file(&self, _filename: &str) {}
        /// A header that another one includes.
        fn include_file(&self, _filename: &str) {}
        /// An environment variable that was read.
        fn read_env_var(&self, _key: &str) {}
    }
}

/// Stands for bindgen's builder: it takes every option and uses none.
#[derive(Debug, Default)]
pub struct Builder;

impl Builder {
    /// Takes an argument for clang.
    pub fn clang_arg(self, _argument: impl Into<String>) -> Self {
        self
    }

    /// Takes whether tests of the layout are wanted; `bindings.rs` always has them.
    pub fn layout_tests(self, _wanted: bool) -> Self {
        self
    }

    /// Takes the header.
    pub fn header(self, _header: impl Into<String>) -> Self {
        self
    }

    /// Takes a listener.
    pub fn parse_callbacks(self, _callbacks: Box<dyn callbacks::ParseCallbacks>) -> Self {
        self
    }

    /// Returns the committed bindings. Never fails.
    pub fn generate(self) -> Result<Bindings, std::convert::Infallible> {
        Ok(Bindings)
    }
}

/// The committed bindings.
#[derive(Debug)]
pub struct Bindings;

impl Bindings {
    /// Writes the bindings to a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write_to_file(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, include_str!("../bindings.rs"))
    }
}
