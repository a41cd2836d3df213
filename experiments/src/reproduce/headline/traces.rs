//! Which stretches of traces choose settings, and which are judged?

use super::protocol::{HeadlineProtocol, PlayedWhen, StretchEntry, TraceSetEntry};
use crate::reproduce::lab::{Lab, bursts};
use anyhow::{Context, anyhow};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use std::path::{Path, PathBuf};

/// A stretch of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Its name.
    pub name: String,
    /// Rates by second.
    pub rates: Vec<f64>,
}

/// One stretch that chooses settings, and stretches that are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSet {
    /// Its name.
    pub name: String,
    /// The stretch that chooses settings.
    pub train: Stretch,
    /// The judged stretches.
    pub judged: Vec<Stretch>,
}

/// The file of a folder that says which stretches choose and which are judged.
const MANIFEST: &str = "traces.yaml";

/// Seconds of a stretch in a run with tiny settings.
const QUICK_SECONDS: usize = 30;

/// The sets that a run plays: those of every run, and the ones that were asked for. Each is a set of the protocol or a
/// folder.
///
/// # Errors
/// If a file cannot be read, or the folder has no stretch to choose on or none to judge.
pub fn read_sets(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<TraceSet>, Failure> {
    let is_named = |asked: &Path, set: &TraceSetEntry| asked == Path::new(&set.name);
    let is_asked = |set: &TraceSetEntry| lab.traces.iter().any(|asked| is_named(asked, set));
    let mut sets = Vec::new();
    match &lab.data {
        Some(data) => {
            let played = protocol.trace_sets.iter().filter(|set| set.run == PlayedWhen::Always || is_asked(set));
            for set in played.take(lab.full_or_quick(usize::MAX, 1)) {
                sets.push(read_set(lab, set, data)?);
            }
        }
        None => sets.push(built_in(lab)),
    }
    let is_folder = |asked: &&PathBuf| !protocol.trace_sets.iter().any(|set| is_named(asked, set));
    for folder in lab.traces.iter().filter(is_folder) {
        sets.push(read_folder(lab, folder)?);
    }
    if lab.quick {
        sets.iter_mut().for_each(shorten);
    }
    Ok(sets)
}

/// The trace of a run without data.
fn built_in(lab: &Lab) -> TraceSet {
    let seconds = lab.full_or_quick(1200, 60);
    let rates: Vec<f64> = bursts(seconds, seconds / 4, seconds / 16, 4.0).iter().map(|r| 64.0 * r).collect();
    let stretch = |name: &str| Stretch { name: name.into(), rates: rates.clone() };
    TraceSet { name: "built-in".into(), train: stretch("bursts x4"), judged: vec![stretch("bursts x4")] }
}

fn shorten(set: &mut TraceSet) {
    set.judged.truncate(1);
    set.train.rates.truncate(QUICK_SECONDS);
    set.judged.iter_mut().for_each(|s| s.rates.truncate(QUICK_SECONDS));
}

/// The stretches of a set whose files are below `folder`.
fn read_set(lab: &Lab, set: &TraceSetEntry, folder: &Path) -> Result<TraceSet, Failure> {
    let read = |entry: &StretchEntry| -> Result<Stretch, Failure> {
        let file = folder.join(&entry.file);
        let rates = lab.rates(&file, Some("qps"), entry.until_s.unwrap_or(usize::MAX))?;
        let rates: Vec<f64> = rates.into_iter().skip(entry.from_s).map(|r| set.scale * r).collect();
        if rates.is_empty() {
            return Err(anyhow!("{}: no rate from second {} on", file.display(), entry.from_s).into());
        }
        Ok(Stretch { name: entry.name.clone(), rates })
    };
    let judged = set.judged.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(TraceSet { name: set.name.clone(), train: read(&set.train)?, judged })
}

/// A folder of rate files. Its `traces.yaml` says which stretches choose settings and which are judged. Without one, the
/// file whose name begins with `train` chooses, and all others are judged, in the order of their names.
fn read_folder(lab: &Lab, folder: &Path) -> Result<TraceSet, Failure> {
    let manifest = folder.join(MANIFEST);
    if manifest.is_file() {
        let text = input::read_text(&manifest.display().to_string())?;
        let entry = serde_saphyr::from_str(&text).with_context(|| manifest.display().to_string())?;
        return read_set(lab, &named(entry, folder), folder);
    }
    let entries = std::fs::read_dir(folder).map_err(|e| {
        let found = format!("{}: {e}", folder.display());
        BadInput::one("--traces", "", found, "a folder of rate files, or the name of a set of the protocol")
    })?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "csv"))
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    let (train, judged): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name.starts_with("train"));
    let entry = |file: &String| StretchEntry {
        name: file.trim_end_matches(".csv").to_owned(),
        file: file.clone(),
        from_s: 0,
        until_s: None,
    };
    let ([train], [_, ..]) = (&train[..], &judged[..]) else {
        let found = format!("{}: {} files train*.csv, {} others", folder.display(), train.len(), judged.len());
        return Err(BadInput::one("--traces", "", found, "one of the former and at least one of the latter").into());
    };
    let (train, judged) = (entry(train), judged.iter().map(entry).collect());
    let set = TraceSetEntry { name: String::new(), run: PlayedWhen::Asked, scale: 1.0, train, judged };
    read_set(lab, &named(set, folder), folder)
}

/// A set without a name has that of its folder.
fn named(set: TraceSetEntry, folder: &Path) -> TraceSetEntry {
    let of_folder = || folder.file_name().map_or_else(|| "traces".into(), |name| name.to_string_lossy().into_owned());
    TraceSetEntry { name: if set.name.is_empty() { of_folder() } else { set.name.clone() }, ..set }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        Lab { quick: false, ..Lab::quick() }
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        folder
    }

    const RATES: &str = "second,qps\n0,1\n1,2\n2,3\n3,4\n";

    #[test]
    fn the_file_named_train_chooses() {
        let folder = folder(&[("b.csv", RATES), ("a.csv", "second,qps\n0,5\n"), ("train-1.csv", RATES), ("notes.txt", "")]);
        let set = read_folder(&lab(), folder.path()).expect("a set");
        assert_eq!((set.train.name.as_str(), &set.train.rates[..]), ("train-1", &[1.0, 2.0, 3.0, 4.0][..]));
        assert_eq!(set.judged.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_manifest_names_stretches() {
        let manifest =
            "scale: 10\ntrain: {name: t, file: x.csv, until_s: 2}\njudged:\n  - {name: j, file: x.csv, from_s: 2}\n";
        let folder = folder(&[("x.csv", RATES), (MANIFEST, manifest)]);
        let set = read_folder(&lab(), folder.path()).expect("a set");
        assert_eq!((set.train.rates, set.judged[0].rates.clone()), (vec![10.0, 20.0], vec![30.0, 40.0]));
    }

    #[test]
    fn a_folder_without_training_is_refused() {
        for files in [&[("a.csv", RATES)][..], &[("train.csv", RATES)][..], &[][..]] {
            assert!(read_folder(&lab(), folder(files).path()).is_err());
        }
        assert!(read_folder(&lab(), Path::new("no/such/folder")).is_err());
    }
}
