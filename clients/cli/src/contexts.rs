//! Which services does the user's file of contexts name?
//!
//! Example: `~/.config/apportion/contexts.yaml` has the text below. The token itself is never in this file.
//!
//! ```yaml
//! current: production
//! contexts:
//!   production: {server: "http://10.0.0.4:7070", token_file: /etc/apportion/anna.token}
//! ```

use crate::args;
use anyhow::Context;
use apportion_support::exit::Failure;
use apportion_support::{input, output};
use apportion_wire::{BadInput, parse_tree};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// Most contexts of a file.
pub const CONTEXTS_MAX: usize = 1_000;
/// The file below the user's folder of settings.
const FILE: &str = "apportion/contexts.yaml";

/// A service, and the token for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceContext {
    /// The URL of the service.
    pub server: String,
    /// File with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// File with the authorities of the service's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cacert: Option<String>,
}

/// The file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextsFile {
    /// Name of the context in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, ServiceContext>,
}

impl ContextsFile {
    /// Refuses addresses that are no URL, a `current` that is not there, and too many contexts.
    fn check(&self, file: &str) -> Result<(), BadInput> {
        if self.contexts.len() > CONTEXTS_MAX {
            let found = format!("{} contexts", self.contexts.len());
            return Err(BadInput::one(file, "/contexts", found, format!("at most {CONTEXTS_MAX}")));
        }
        for (name, context) in &self.contexts {
            if args::service_url(&context.server).is_err() {
                let pointer = format!("/contexts/{name}/server");
                return Err(BadInput::one(file, pointer, &context.server, "a URL such as http://10.0.0.4:7070"));
            }
        }
        match &self.current {
            Some(name) if !self.contexts.contains_key(name) => {
                Err(BadInput::one(file, "/current", name, format!("a context of the file: {}", self.names())))
            }
            _ => Ok(()),
        }
    }

    /// The names in words, for messages.
    fn names(&self) -> String {
        match self.contexts.is_empty() {
            true => "there is none, `apportion context set` makes one".to_owned(),
            false => self.contexts.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        }
    }

    /// The context with a name that `place` gives.
    ///
    /// # Errors
    /// If there is no such context.
    pub fn named(&self, place: &str, name: &str) -> Result<&ServiceContext, BadInput> {
        let missing = || BadInput::one(place, "", format!("no context {name:?}"), format!("one of {}", self.names()));
        self.contexts.get(name).ok_or_else(missing)
    }

    /// The context in use; `None` if none is.
    pub fn in_use(&self) -> Option<&ServiceContext> {
        self.contexts.get(self.current.as_ref()?)
    }
}

/// Where the file is: below `XDG_CONFIG_HOME`, or below `.config` of `HOME`. `None` if neither is an absolute path.
fn contexts_path() -> Option<PathBuf> {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    settings.map(|settings| settings.join(FILE))
}

/// Reads the contexts. There are none without a file.
///
/// # Errors
/// If the file cannot be read, or if a value in it is refused.
pub fn read_contexts() -> Result<ContextsFile, Failure> {
    let Some(path) = contexts_path().filter(|path| path.exists()) else { return Ok(ContextsFile::default()) };
    let file = path.display().to_string();
    let tree = parse_tree(&file, &input::read_text(&file)?)?;
    let expected = "`current`, and `contexts` with `server`, `token_file` and `cacert` by name";
    let contexts: ContextsFile = serde_json::from_value(tree).map_err(|e| BadInput::one(&file, "", e, expected))?;
    contexts.check(&file)?;
    Ok(contexts)
}

/// Replaces the file of contexts as a whole. Only the user can read it.
///
/// # Errors
/// If a value is refused, or if the file cannot be written.
pub fn write_contexts(contexts: &ContextsFile) -> Result<(), Failure> {
    let found = || BadInput::one("XDG_CONFIG_HOME, HOME", "", "no absolute path", "a folder for the user's settings");
    let path = contexts_path().ok_or_else(found)?;
    let place = || format!("writing {}", path.display());
    contexts.check(&path.display().to_string())?;
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(place)?;
    }
    let text = output::yaml(contexts)?;
    let new = path.with_extension(format!("yaml.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).with_context(place)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(place)?;
    fs::rename(&new, &path).with_context(place)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(current: Option<&str>, server: &str) -> ContextsFile {
        let context = ServiceContext { server: server.to_owned(), token_file: None, cacert: None };
        ContextsFile { current: current.map(str::to_owned), contexts: [("here".to_owned(), context)].into() }
    }

    #[test]
    fn a_context_is_found_by_its_name() {
        let contexts = file(Some("here"), "http://127.0.0.1:7070");
        assert_eq!(contexts.check("f"), Ok(()));
        assert_eq!(contexts.in_use(), contexts.named("--context", "here").ok());
        let refused = contexts.named("--context", "there").expect_err("no such context");
        assert_eq!(refused.to_string(), "--context: no context \"there\": expected one of here");
    }

    #[test]
    fn wrong_contexts_are_refused_at_their_places() {
        let refusal = |contexts: &ContextsFile| contexts.check("f").expect_err("it is wrong").to_string();
        assert!(refusal(&file(None, "10.0.0.4")).starts_with("f: /contexts/here/server: 10.0.0.4"));
        assert!(
            refusal(&file(Some("there"), "http://x")).starts_with("f: /current: there: expected a context of the file")
        );
        let mut many = file(None, "http://x");
        let context = many.contexts["here"].clone();
        many.contexts.extend((0..CONTEXTS_MAX).map(|n| (n.to_string(), context.clone())));
        assert!(refusal(&many).contains("/contexts: 1001 contexts: expected at most 1000"));
    }

    #[test]
    fn contexts_are_read_back_as_written() {
        let contexts = file(Some("here"), "http://127.0.0.1:7070");
        let tree = parse_tree("f.yaml", &output::yaml(&contexts).expect("YAML")).expect("YAML");
        assert_eq!(serde_json::from_value::<ContextsFile>(tree).expect("contexts"), contexts);
    }
}
