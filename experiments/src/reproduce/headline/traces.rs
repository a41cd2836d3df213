//! Which stretches of traces choose settings, and which are judged?

use super::protocol::{HeadlineProtocol, PlayedWhen, StretchEntry, TraceSetEntry};
use crate::reproduce::lab::{Lab, bursts};
use anyhow::Context;
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use std::path::Path;

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

/// Fewest requests of a stretch, before a pipeline's factor: at 99 %, ten of them may miss.
pub const STRETCH_REQUESTS_MIN: f64 = 1e3;

/// Most requests of a stretch, before a pipeline's factor. A run plays each stretch some hundred times.
pub const STRETCH_REQUESTS_MAX: f64 = 2e7;

/// The sets that a run plays: those of every run, and the ones that were asked for. Each is a set of the protocol or a
/// folder.
///
/// # Errors
/// If a file cannot be read, or a folder has no stretch to choose on or none to judge. Also if a stretch has too few or too
/// many requests, or two sets have one name.
pub fn read_sets(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<TraceSet>, Failure> {
    let is_named = |asked: &Path, set: &TraceSetEntry| asked == Path::new(&set.name);
    let is_of_protocol = |asked: &Path| protocol.trace_sets.iter().any(|set| is_named(asked, set));
    if let Some(asked) = lab.traces.iter().find(|asked| lab.data.is_none() && is_of_protocol(asked)) {
        let expected = "--data too: the folder that has the files of the protocol's sets";
        return Err(BadInput::one("--traces", "", format!("the set {}", asked.display()), expected).into());
    }
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
    for folder in lab.traces.iter().filter(|asked| !is_of_protocol(asked)) {
        if !folder.is_dir() {
            let names: Vec<&str> = protocol.trace_sets.iter().map(|set| set.name.as_str()).collect();
            let expected = format!("a folder of rate files, or one of the protocol's sets {}", names.join(", "));
            return Err(BadInput::one("--traces", "", folder.display(), expected).into());
        }
        sets.push(read_folder(lab, folder)?);
    }
    check_names(&sets)?;
    if lab.quick {
        sets.iter_mut().for_each(shorten);
    }
    Ok(sets)
}

/// Tables tell sets apart by their names.
fn check_names(sets: &[TraceSet]) -> Result<(), Failure> {
    let is_repeated = |(at, set): &(usize, &TraceSet)| sets[..*at].iter().any(|other| other.name == set.name);
    match sets.iter().enumerate().find(is_repeated) {
        None => Ok(()),
        Some((_, set)) => {
            let expected = format!("each set once, or another `name: ...` in the {MANIFEST} of its folder");
            Err(BadInput::one("--traces", "", format!("two sets with the name {:?}", set.name), expected).into())
        }
    }
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
    check_apart(set, folder)?;
    let read = |entry: &StretchEntry| read_stretch(lab, set.scale, entry, &folder.join(&entry.file));
    let judged = set.judged.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(TraceSet { name: set.name.clone(), train: read(&set.train)?, judged })
}

/// A set has a stretch to judge, and none of them has a second of the stretch that chooses settings.
fn check_apart(set: &TraceSetEntry, folder: &Path) -> Result<(), Failure> {
    let end = |entry: &StretchEntry| entry.until_s.unwrap_or(usize::MAX);
    let is_shared = |judged: &&StretchEntry| {
        judged.file == set.train.file && judged.from_s < end(&set.train) && set.train.from_s < end(judged)
    };
    let refused = |found: String, expected: &str| -> Result<(), Failure> {
        Err(BadInput::one(&folder.display().to_string(), "", found, expected).into())
    };
    match set.judged.iter().find(is_shared) {
        _ if set.judged.is_empty() => refused("no stretch to judge".into(), "at least one entry of `judged`"),
        Some(judged) => refused(
            format!("{:?} is judged and shares seconds with {:?}, which chooses settings", judged.name, set.train.name),
            "`from_s` and `until_s` that keep them apart",
        ),
        None => Ok(()),
    }
}

fn read_stretch(lab: &Lab, scale: f64, entry: &StretchEntry, file: &Path) -> Result<Stretch, Failure> {
    let refused = |found: String, expected: String| {
        BadInput::one(&file.display().to_string(), "", format!("stretch {:?}: {found}", entry.name), expected)
    };
    let rates = lab.rates(file, entry.column.as_deref(), entry.until_s.unwrap_or(usize::MAX))?;
    let seconds = rates.len();
    let rates: Vec<f64> = rates.into_iter().skip(entry.from_s).map(|rate| scale * rate).collect();
    if rates.is_empty() {
        let found = format!("no second from {} on", entry.from_s);
        return Err(refused(found, format!("`from_s` below `until_s` and below {seconds}")).into());
    }
    let requests: f64 = rates.iter().sum();
    let is_playable = (STRETCH_REQUESTS_MIN..=STRETCH_REQUESTS_MAX).contains(&requests);
    match is_playable && rates.iter().all(|rate| *rate >= 0.0) {
        true => Ok(Stretch { name: entry.name.clone(), rates }),
        false => Err(refused(
            format!("{requests:.0} requests in {} s", rates.len()),
            format!("{STRETCH_REQUESTS_MIN} to {STRETCH_REQUESTS_MAX}; `scale` in {MANIFEST} multiplies all rates"),
        )
        .into()),
    }
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
        column: None,
        from_s: 0,
        until_s: None,
    };
    let ([train], [_, ..]) = (&train[..], &judged[..]) else { return Err(no_training(folder, &train, &judged).into()) };
    let (train, judged) = (entry(train), judged.iter().map(entry).collect());
    let set = TraceSetEntry { name: String::new(), run: PlayedWhen::Asked, scale: 1.0, train, judged };
    read_set(lab, &named(set, folder), folder)
}

/// The error for a folder whose file names do not say what chooses settings and what is judged. It shows the manifest that
/// would say it.
fn no_training(folder: &Path, train: &[String], others: &[String]) -> BadInput {
    let found = format!("{} files named train*.csv and {} other .csv files", train.len(), others.len());
    let file = train.iter().chain(others).next().map_or("week.csv", String::as_str);
    let expected = format!(
        "one of the former, which chooses settings, and at least one of the latter, which are judged; or a file \
         {MANIFEST}, for example: {{train: {{name: before, file: {file:?}, until_s: 1800}}, judged: [{{name: after, \
         file: {file:?}, from_s: 1800}}]}}"
    );
    BadInput::one(&folder.display().to_string(), "", found, expected)
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

    const RATES: &str = "second,qps\n0,1000\n1,2000\n2,3000\n3,4000\n";

    #[test]
    fn the_file_named_train_chooses() {
        let folder =
            folder(&[("b.csv", RATES), ("a.csv", "second,qps\n0,5000\n"), ("train-1.csv", RATES), ("notes.txt", "")]);
        let set = read_folder(&lab(), folder.path()).expect("a set");
        assert_eq!((set.train.name.as_str(), &set.train.rates[..]), ("train-1", &[1e3, 2e3, 3e3, 4e3][..]));
        assert_eq!(set.judged.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_manifest_names_stretches() {
        let manifest =
            "scale: 10\ntrain: {name: t, file: x.csv, until_s: 2}\njudged:\n  - {name: j, file: x.csv, from_s: 2}\n";
        let folder = folder(&[("x.csv", RATES), (MANIFEST, manifest)]);
        let set = read_folder(&lab(), folder.path()).expect("a set");
        assert_eq!((set.train.rates, set.judged[0].rates.clone()), (vec![1e4, 2e4], vec![3e4, 4e4]));
    }

    /// The message for a folder with these files.
    fn refusal(files: &[(&str, &str)]) -> String {
        read_folder(&lab(), folder(files).path()).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_folder_without_training_is_refused() {
        let refusals = [
            (&[("a.csv", RATES)][..], "0 files named train*.csv and 1 other .csv files"),
            (&[("train.csv", RATES)][..], "1 files named train*.csv and 0 other .csv files"),
            (&[("train-1.csv", RATES), ("train-2.csv", RATES), ("a.csv", RATES)][..], "2 files named train*.csv and 1"),
            (&[][..], "week.csv"),
        ];
        for (files, said) in refusals {
            let message = refusal(files);
            assert!(message.contains(said) && message.contains(MANIFEST), "{message}");
        }
        assert!(read_folder(&lab(), Path::new("no/such/folder")).is_err());
    }

    #[test]
    fn the_shown_manifest_is_one() {
        let folder = folder(&[("my days.csv", RATES)]);
        let BadInput { problems, .. } = no_training(folder.path(), &[], &["my days.csv".to_owned()]);
        let expected = &problems[0].expected;
        let shown = &expected[expected.find('{').expect("an example")..];
        // 1800 seconds are more than this file has
        std::fs::write(folder.path().join(MANIFEST), shown.replace("1800", "2")).expect("a file");
        let set = read_folder(&lab(), folder.path()).expect("a set");
        assert_eq!((set.train.rates, set.judged[0].rates.clone()), (vec![1e3, 2e3], vec![3e3, 4e3]));
    }

    #[test]
    fn stretches_that_cannot_be_judged_are_refused() {
        let manifest = |text: &str| refusal(&[("x.csv", RATES), ("y.csv", "second,queries\n0,9000\n"), (MANIFEST, text)]);
        let refusals = [
            ("train: {name: t, file: x.csv}\njudged: []\n", "no stretch to judge"),
            ("train: {name: t, file: x.csv, until_s: 3}\njudged: [{name: j, file: x.csv, from_s: 2}]\n", "shares seconds"),
            ("train: {name: t, file: x.csv, until_s: 2}\njudged: [{name: j, file: x.csv, from_s: 4}]\n", "below 4"),
            ("scale: 0.1\ntrain: {name: t, file: x.csv}\njudged: [{name: j, file: y.csv}]\n", "900 requests in 1 s"),
            ("scale: 100000\ntrain: {name: t, file: y.csv}\njudged: [{name: j, file: x.csv}]\n", "1000000000 requests"),
            ("scale: -1\ntrain: {name: t, file: y.csv}\njudged: [{name: j, file: x.csv}]\n", "-10000 requests"),
            ("train: {name: t, file: x.csv, column: rps}\njudged: [{name: j, file: y.csv}]\n", "column"),
            ("train: {name: t, file: x.csv}\njudged: [{name: j, file: z.csv}]\n", "z.csv"),
        ];
        for (text, said) in refusals {
            let message = manifest(text);
            assert!(message.contains(said), "{said}: {message}");
        }
        let arrivals = refusal(&[("train.csv", RATES), ("a.csv", "arrival_ms\n5\n")]);
        assert!(arrivals.contains("the columns second and qps"), "{arrivals}");
    }

    #[test]
    fn gaps_and_other_steps_are_read() {
        let minutes = "second,rate\n600,10\n660,20\n780,30\n";
        let folder = folder(&[("train.csv", RATES), ("minutes.csv", minutes)]);
        let rates = read_folder(&lab(), folder.path()).expect("a set").judged[0].rates.clone();
        assert_eq!((rates.len(), rates[59], rates[60], rates[120], rates[239]), (240, 10.0, 20.0, 0.0, 30.0));
    }

    #[test]
    fn asked_sets_are_found_or_refused() {
        let protocol = HeadlineProtocol::committed().expect("a valid file");
        let asked = |traces: &[&Path], data: Option<&Path>| {
            let traces = traces.iter().map(|path| path.to_path_buf()).collect();
            read_sets(&Lab { traces, data: data.map(Path::to_path_buf), ..lab() }, &protocol)
        };
        let refusal = |traces: &[&Path]| asked(traces, None).expect_err("a refusal").to_string();
        assert!(refusal(&[Path::new("seen")]).contains("--data too"));
        let unknown = refusal(&[Path::new("no-such-set")]);
        assert!(unknown.contains("no-such-set") && unknown.contains("seen, later, faster"), "{unknown}");
        let folder = folder(&[("train.csv", RATES), ("a.csv", RATES)]);
        let twice = refusal(&[folder.path(), folder.path()]);
        assert!(twice.contains("two sets with the name"), "{twice}");
        let names: Vec<String> = asked(&[folder.path()], None).expect("sets").into_iter().map(|set| set.name).collect();
        assert_eq!((names.len(), names[0].as_str()), (2, "built-in"));
    }
}
