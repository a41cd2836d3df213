//! How do the lists of transforms that lie in files of their own get into a pipeline?
//!
//! Example: `alphabet_file: keys.txt` becomes `classes` with a text for each line. A service gets the pipeline alone, so it
//! must contain them. Models bring their lists in files of other kinds: `config.json#labels` is the list at a key of an
//! object, `tokenizer.json#model.vocab` a list whose texts have numbers, and `read.onnx#character` the lines of a text in
//! the model file's own metadata.

use apportion_domain::transform::VOCABULARY_BYTES_MAX;
use apportion_import::read_metadata;
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use serde_json::Value;
use std::path::Path;

/// A transform whose list may be in a file.
struct ListKeys {
    transform: &'static str,
    /// The key with the path of the file.
    file: &'static str,
    /// The key with the list.
    list: &'static str,
}

const KEYS: [ListKeys; 2] = [
    ListKeys { transform: "decode_text", file: "alphabet_file", list: "classes" },
    ListKeys { transform: "tokenise", file: "vocabulary_file", list: "vocabulary" },
];

/// Puts the lists in place of the files that `tree`, the pipeline of `file`, names. Paths are relative to `file`.
///
/// # Errors
/// If a file cannot be read, has no list or is too large, or if a list is there too. Only `classes` may be there: they
/// follow those of the file.
pub fn read_lists(file: &str, tree: &mut Value) -> Result<(), Failure> {
    let folder = Path::new(file).parent().unwrap_or(Path::new("."));
    for (list, places) in [("tasks", &["before", "after"][..]), ("edges", &["transform"][..])] {
        // A missing key stays missing: an index would add it.
        let members = tree.get_mut(list).and_then(Value::as_array_mut);
        for (at, member) in members.into_iter().flatten().enumerate() {
            for place in places {
                let steps = member.get_mut(*place).and_then(Value::as_array_mut);
                for (step, transform) in steps.into_iter().flatten().enumerate() {
                    read_list(file, folder, transform, &format!("/{list}/{at}/{place}/{step}"))?;
                }
            }
        }
    }
    Ok(())
}

fn read_list(file: &str, folder: &Path, transform: &mut Value, at: &str) -> Result<(), Failure> {
    for keys in &KEYS {
        let Some(settings) = transform.get_mut(keys.transform).and_then(Value::as_object_mut) else { continue };
        let Some(path) = settings.get(keys.file).and_then(Value::as_str).map(|path| folder.join(path)) else { continue };
        let place = format!("{at}/{}/{}", keys.transform, keys.file);
        let refused = |found: String, expected: String| BadInput::one(file, place.as_str(), found, expected);
        let both = if keys.list == "classes" { "alphabet" } else { keys.list };
        if settings.contains_key(both) {
            let expected = "a list or a file, not both".to_owned();
            return Err(refused(path.display().to_string(), expected).into());
        }
        let texts = texts_of(&path.display().to_string())?;
        let bytes: usize = texts.iter().map(String::len).sum();
        if bytes > VOCABULARY_BYTES_MAX {
            return Err(refused(format!("{bytes} bytes"), format!("at most {VOCABULARY_BYTES_MAX} bytes")).into());
        }
        let more = match settings.remove(keys.list) {
            Some(Value::Array(more)) => more,
            Some(other) => vec![other],
            None => Vec::new(),
        };
        let list: Vec<Value> = texts.into_iter().map(Value::from).chain(more).collect();
        settings.insert(keys.list.to_owned(), list.into());
        settings.remove(keys.file);
    }
    Ok(())
}

/// The texts of the list that `path` names: the lines of a file, or `FILE.json#KEY`, or `FILE.onnx#KEY`.
fn texts_of(path: &str) -> Result<Vec<String>, Failure> {
    // A line may be a space: nothing but its end is cut off.
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let kind = |name: &str| Path::new(name).extension().and_then(|kind| kind.to_str()).map(str::to_owned);
    let Some((name, key)) = path.rsplit_once('#') else { return Ok(lines(&input::read_text(path)?)) };
    match kind(name).as_deref() {
        Some("json") => json_list(name, key),
        Some("onnx") => {
            let mut metadata = read_metadata(name, &input::read_bytes(name)?)?;
            let known = metadata.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let text = metadata.remove(key).ok_or_else(|| {
                let found = format!("its metadata have the keys [{known}]");
                BadInput::one(name, key, found, "a key with a text of one class on each line")
            })?;
            Ok(lines(&text))
        }
        _ => Ok(lines(&input::read_text(path)?)),
    }
}

/// The list of texts at a key of the object in a JSON file. A key within others has points: `model.vocab`.
fn json_list(name: &str, key: &str) -> Result<Vec<String>, Failure> {
    const EXPECTED: &str =
        "a JSON object with a list of texts at this key, or with an object of texts and their numbers from 0 on";
    let tree: Value = serde_json::from_str(&input::read_text(name)?).map_err(|e| BadInput::one(name, key, e, EXPECTED))?;
    let within = || key.split('.').try_fold(&tree, |value, part| value.get(part));
    let texts = tree.get(key).or_else(within).and_then(listed_texts);
    Ok(texts.ok_or_else(|| BadInput::one(name, key, "no list of texts", EXPECTED))?)
}

/// The texts of a list, or of an object with a number for each text, or with a text for each number. The numbers are those
/// from 0 on, each once.
fn listed_texts(value: &Value) -> Option<Vec<String>> {
    let Value::Object(object) = value else {
        return value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect();
    };
    let mut texts: Vec<Option<String>> = vec![None; object.len()];
    for (key, value) in object {
        let (number, text) = match value {
            Value::String(text) => (key.parse::<usize>().ok()?, text),
            number => (usize::try_from(number.as_u64()?).ok()?, key),
        };
        texts.get_mut(number)?.replace(text.clone()).is_none().then_some(())?;
    }
    texts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_come_from_files_beside_the_pipeline() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("keys.txt"), "a\r\nb\n \n").expect("written");
        let file = folder.path().join("p.yaml").display().to_string();
        let step = || json!({"decode_text": {"of": "x", "alphabet_file": "keys.txt"}});
        let mut tree = json!({"tasks": [{"name": "a"}, {"name": "b", "after": [{"nms": {}}, step()]}]});
        read_lists(&file, &mut tree).unwrap_or_else(|e| panic!("{e:?}"));
        let read = json!({"decode_text": {"of": "x", "classes": ["a", "b", " "]}});
        assert_eq!(tree, json!({"tasks": [{"name": "a"}, {"name": "b", "after": [{"nms": {}}, read]}]}));
        let mut twice = json!({"edges": [{"transform": [step()]}]});
        twice["edges"][0]["transform"][0]["decode_text"]["alphabet"] = json!("ab");
        let Err(Failure::BadInput(said)) = read_lists(&file, &mut twice) else { panic!("one of both") };
        assert!(said.contains("/edges/0/transform/0/decode_text/alphabet_file"), "{said}");
        let mut longer = json!({"edges": [{"transform": [step()]}]});
        longer["edges"][0]["transform"][0]["decode_text"]["classes"] = json!(["c"]);
        read_lists(&file, &mut longer).unwrap_or_else(|e| panic!("{e:?}"));
        let classes = &longer["edges"][0]["transform"][0]["decode_text"]["classes"];
        assert_eq!(*classes, json!(["a", "b", " ", "c"]), "classes follow those of the file");
        let mut missing = json!({"tasks": [{"before": [{"tokenise": {"vocabulary_file": "none.txt"}}]}]});
        assert!(read_lists(&file, &mut missing).is_err());
    }

    #[test]
    fn lists_come_from_within_other_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("config.json"), r#"{"labels": ["a", "b c"], "size": 3, "mixed": ["a", 1]}"#).expect("written");
        assert_eq!(texts_of(&path("config.json#labels")).unwrap_or_default(), ["a", "b c"]);
        for (key, said) in [("size", "no list of texts"), ("mixed", "no list of texts"), ("none", "at this key")] {
            let Err(Failure::BadInput(error)) = texts_of(&path(&format!("config.json#{key}"))) else { panic!("{key}") };
            assert!(error.contains(said) && error.contains(key), "{error}");
        }
        let numbered = r#"{"model": {"vocab": {"b": 1, "a": 0}}, "id2label": {"1": "good", "0": "bad"}, "a.b": ["x"],
            "gap": {"a": 0, "b": 2}, "twice": {"a": 0, "b": 0}, "both": {"0": "a", "b": 1}, "none": {}}"#;
        std::fs::write(path("tokenizer.json"), numbered).expect("written");
        let lists = [
            ("model.vocab", &["a", "b"][..]),
            ("id2label", &["bad", "good"][..]),
            ("a.b", &["x"][..]),
            ("both", &["a", "b"][..]),
        ];
        for (key, expected) in lists {
            assert_eq!(texts_of(&path(&format!("tokenizer.json#{key}"))).unwrap_or_default(), expected, "{key}");
        }
        for key in ["gap", "twice", "model", "model.none"] {
            assert!(texts_of(&path(&format!("tokenizer.json#{key}"))).is_err(), "{key}");
        }
        // `metadata_props` (14) of ONNX's `ModelProto`: a key (1) and a value (2).
        let entry = [&[10_u8, 4][..], &b"keys"[..], &[18, 5][..], &b"x\ny\n "[..]].concat();
        assert_eq!(entry.len(), 13);
        let model = [&[114_u8, 13][..], &entry[..]].concat();
        std::fs::write(path("read.onnx"), model).expect("written");
        assert_eq!(texts_of(&path("read.onnx#keys")).unwrap_or_default(), ["x", "y", " "]);
        let Err(Failure::BadInput(error)) = texts_of(&path("read.onnx#character")) else { panic!("another key") };
        assert!(error.contains("the keys [keys]"), "{error}");
        std::fs::write(path("a#b"), "z\n").expect("written");
        assert_eq!(texts_of(&path("a#b")).unwrap_or_default(), ["z"], "a name may have this sign");
    }
}
