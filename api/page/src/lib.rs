//! Which files make the page that the service serves at `/`?
//!
//! The files are in `assets/`: plain ECMAScript modules, style sheets, and the chart library in `vendor/`. They are part of
//! the binary. Nothing is built, and the page loads nothing from elsewhere.
//!
//! What belongs here: the files, their media types and their cache tags. What never does: HTTP, and anything that the page
//! would know and clients of the API would not. The commonest addition is a module: name it in `files`.

mod files;
pub mod report;

use files::FILES;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::LazyLock;

/// What a browser may load and do on the page: its own files, and requests to its own service. No inline scripts.
pub const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The page itself.
const INDEX: &str = "index.html";
/// The place in the page of the version.
const VERSION_MARK: &str = "VERSION";
/// Hexadecimal digits of the version: enough that two releases differ.
const VERSION_DIGITS: usize = 16;

/// A file of the page.
#[derive(Clone, Debug)]
pub struct Asset {
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub plain: Vec<u8>,
    /// The same, compressed by gzip.
    pub gzip: Vec<u8>,
    /// A tag of its bytes, in quotes, as in the header `ETag`.
    pub tag: String,
}

/// The version of all files together: a part of their paths, so that a browser may keep them for ever.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    for (name, bytes) in FILES {
        hasher.update(name);
        hasher.update(bytes.len().to_le_bytes());
        hasher.update(bytes);
    }
    hex(&hasher.finalize())[..VERSION_DIGITS].to_owned()
});

static ASSETS: LazyLock<BTreeMap<&str, Asset>> =
    LazyLock::new(|| FILES.iter().map(|(name, bytes)| (*name, asset_of(name, bytes))).collect());

fn asset_of(name: &str, bytes: &[u8]) -> Asset {
    let plain = match name {
        INDEX => String::from_utf8_lossy(bytes).replace(VERSION_MARK, &VERSION).into_bytes(),
        _ => bytes.to_vec(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish()).expect("bytes in memory");
    let tag = format!("\"{}\"", &hex(&Sha256::digest(&plain))[..VERSION_DIGITS]);
    Asset { media_type: media_type(name), plain, gzip, tag }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// The page itself. It names the other files by [`version`].
///
/// # Panics
/// Never: the page is one of the files.
#[must_use]
pub fn index() -> &'static Asset {
    asset(INDEX).expect("the page is one of the files")
}

/// The file with this name, if there is one.
#[must_use]
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.get(name)
}

/// The version of all files together. Two binaries with the same files have the same version.
#[must_use]
pub fn version() -> &'static str {
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// Most bytes of the whole page, compressed.
    const GZIP_BYTES_MAX: usize = 300_000;
    /// Longest file of ours, in lines.
    const LINES_MAX: usize = 500;
    /// Longest line of ours, in characters.
    const COLUMNS_MAX: usize = 124;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("assets")
    }

    fn names(folder: &Path, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true => found.extend(names(&entry.path(), &format!("{name}/"))),
                false => found.push(name),
            }
        }
        found.sort();
        found
    }

    fn ours() -> impl Iterator<Item = (&'static str, &'static str)> {
        let text = |(name, bytes): &(&'static str, &'static [u8])| (*name, std::str::from_utf8(bytes).expect("text"));
        FILES.iter().map(text).filter(|(name, _)| !name.starts_with("vendor/"))
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let mut listed: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        listed.sort();
        assert_eq!(listed, names(&folder(), ""));
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = ASSETS.values().map(|asset| asset.gzip.len()).sum();
        eprintln!("{bytes} bytes in {} files, compressed", ASSETS.len());
        assert!(bytes < GZIP_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn files_are_short_and_say_what_they_are_for() {
        for (name, text) in ours() {
            assert!(text.lines().count() <= LINES_MAX, "{name} has more than {LINES_MAX} lines; split it by decision");
            let long = text.lines().position(|line| line.chars().count() > COLUMNS_MAX);
            assert!(long.is_none(), "{name}:{}: more than {COLUMNS_MAX} columns", long.unwrap_or(0) + 1);
            if name.ends_with(".js") {
                assert!(text.starts_with("// "), "{name} does not begin with the question that it answers");
            }
        }
    }

    #[test]
    fn nothing_is_inline_or_loaded_from_elsewhere() {
        let marks = ["<script>", "<style", " style=\"", "innerHTML", "eval(", "javascript:"];
        for (name, text) in ours() {
            for mark in marks {
                assert!(!text.contains(mark), "{name} has {mark:?}, which the security policy forbids or should");
            }
            let foreign = text.lines().find(|l| l.contains("://") && !l.contains("http://www.w3.org/"));
            assert!(foreign.is_none(), "{name} names another place: {foreign:?}");
        }
    }

    #[test]
    fn every_import_names_a_file() {
        for (name, text) in ours().filter(|(name, _)| name.ends_with(".js")) {
            let imports = text.lines().filter_map(|line| line.split(" from \"").nth(1)?.split('"').next());
            for import in imports {
                assert!(asset(&report::resolved(name, import)).is_some(), "{name} imports {import}");
            }
        }
    }

    #[test]
    fn the_page_names_files_by_version() {
        let text = String::from_utf8_lossy(&index().plain).into_owned();
        assert!(text.contains(&format!("page/{}/app.js", version())) && !text.contains(VERSION_MARK), "{text}");
    }
}
