//! The committed bindings of HiGHS, `solver/bindgen/bindings.rs`, agree with the header of the HiGHS that is compiled.
//!
//! `read.rs` reads the bindings, `header.rs` writes a C program that compares each of them with the header. The C
//! compiler that compiled HiGHS compiles the program; the program prints what differs.
//!
//! To write the bindings again, when the version of `highs-sys` changes (this alone needs libclang):
//!
//! ```sh
//! apt-get install -y libclang-14-dev && cargo install bindgen-cli --version 0.72.1
//! cargo build -p highs-sys
//! include=$(dirname "$(find target/debug/build -path '*/out/include/highs/HConfig.h')")
//! bindgen "$include/interfaces/highs_c_api.h" --allowlist-item '.*[hH]ighs.*' --no-doc-comments \
//!     -o solver/bindgen/bindings.rs -- -I"$include"
//! ```

mod header;
mod read;

use read::Bindings;
use std::path::{Path, PathBuf};

/// The bindings that `highs-sys` is compiled with.
const BINDINGS: &str = include_str!("../../../bindgen/bindings.rs");

/// The version of the HiGHS that this program is linked with.
fn linked_version() -> [i32; 3] {
    use highs_sys::{Highs_versionMajor, Highs_versionMinor, Highs_versionPatch};
    #[allow(unsafe_code, reason = "the three functions take nothing and return a number")]
    // SAFETY: they have no arguments and read constants.
    unsafe {
        [Highs_versionMajor(), Highs_versionMinor(), Highs_versionPatch()]
    }
}

/// The folders of headers that were installed by a build of `highs-sys` in this target folder.
fn installed() -> Vec<PathBuf> {
    let program = std::env::current_exe().expect("this program");
    let builds = program.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("build");
    let entries = std::fs::read_dir(&builds).unwrap_or_else(|e| panic!("{}: {e}", builds.display()));
    let folders = entries.map(|entry| entry.expect("a folder that can be read").path());
    let ours = folders.filter(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("highs-sys-")));
    ours.map(|folder| folder.join("out/include/highs")).filter(|folder| folder.join("HConfig.h").is_file()).collect()
}

/// The headers of the HiGHS that this program is linked with.
fn include() -> PathBuf {
    let version = linked_version();
    let found = installed();
    let of_version = found.iter().find(|folder| header::version(folder) == version);
    of_version.unwrap_or_else(|| panic!("no header of HiGHS {version:?} among {found:?}")).clone()
}

/// The differences between a text of bindings and the header.
fn differences(text: &str, include: &Path) -> Vec<String> {
    match Bindings::read(text) {
        Ok(bindings) => header::differences(&bindings, include),
        Err(error) => vec![error.to_string()],
    }
}

#[test]
fn the_bindings_agree_with_the_header_that_is_compiled() {
    let bindings = Bindings::read(BINDINGS).expect("bindings that this test can read");
    let counts = [bindings.functions.len(), bindings.constants.len(), bindings.structs.len(), bindings.aliases.len()];
    eprintln!("{counts:?} functions, constants, structs, aliases");
    assert!(counts[0] > 150 && counts[1] > 80 && counts[2] == 2 && counts[3] == 3, "{counts:?}: this test reads too few");
    let found = differences(BINDINGS, &include());
    assert!(found.is_empty(), "solver/bindgen/bindings.rs is not what the header says:\n{}", found.join("\n"));
}

#[test]
fn every_kind_of_difference_is_found() {
    let include = include();
    let infinity =
        "unsafe extern \"C\" {\n    pub fn Highs_getHighsInfinity(highs: *const ::std::os::raw::c_void) -> f64;\n}\n";
    let cases = [
        ("pub const kHighsModelStatusOptimal: HighsInt = 7;", "pub const kHighsModelStatusOptimal: HighsInt = 8;", "value"),
        ("pub const kHighsModelStatusOptimal: HighsInt", "pub const kHighsModelStatusOptimal: f64", "type"),
        ("b\"mip_gap\\0\"", "b\"mip_gab\\0\"", "kHighsCallbackDataOutMipGapName"),
        ("pub const kHighsStatusOk: HighsInt = 0;\n", "", "kHighsStatusOk is in the header only"),
        ("kHighsStatusOk", "kHighsStatusFine", "kHighsStatusFine is in the bindings only"),
        ("pub type HighsInt = ::std::os::raw::c_int;", "pub type HighsInt = i64;", "HighsInt"),
        ("arg2: *const ::std::os::raw::c_char", "arg2: *mut ::std::os::raw::c_char", "HighsCCallbackType"),
        ("pub mip_gap: f64", "pub mip_gap: f32", "HighsCallbackDataOut::mip_gap: type"),
        ("(HighsCallbackDataOut, mip_gap) - 80usize", "(HighsCallbackDataOut, mip_gap) - 84usize", "mip_gap: offset"),
        ("size_of::<HighsCallbackDataOut>() - 160usize", "size_of::<HighsCallbackDataOut>() - 168usize", "size"),
        ("align_of::<HighsCallbackDataIn>() - 8usize", "align_of::<HighsCallbackDataIn>() - 4usize", "alignment"),
        ("Offset of field: HighsCallbackDataIn::cbdata", "Offset of field: HighsCallbackDataIn::data", "layout"),
        ("getHighsInfinity(highs: *const", "getHighsInfinity(highs: *mut", "Highs_getHighsInfinity: type"),
        ("raw::c_void) -> f64;", "raw::c_void) -> f32;", ": type"),
        (infinity, "", "Highs_getHighsInfinity is in the header only"),
        ("Highs_getHighsInfinity", "Highs_getInfinities", "Highs_getInfinities is in the bindings only"),
        ("pub type HighsInt", "pub union HighsInt", "cannot read"),
    ];
    for (from, to, said) in cases {
        assert!(BINDINGS.contains(from), "the bindings have {from:?}");
        let found = differences(&BINDINGS.replacen(from, to, 1), &include);
        assert!(found.iter().any(|f| f.contains(said)), "{from:?} -> {to:?} should say {said:?}: {found:?}");
    }
}
