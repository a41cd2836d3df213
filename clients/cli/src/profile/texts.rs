//! How do the lists of transforms that lie in files of their own get into a pipeline?
//!
//! Example: `alphabet_file: keys.txt` becomes `classes` with a text for each line. A service gets the pipeline alone, so it
//! must contain them.

use apportion_domain::transform::VOCABULARY_BYTES_MAX;
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
/// If a file cannot be read or is too large, or if a list is there too.
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
        if settings.contains_key(keys.list) || (keys.list == "classes" && settings.contains_key("alphabet")) {
            return Err(BadInput::one(file, place, path.display(), "a list or a file, not both").into());
        }
        let text = input::read_text(&path.display().to_string())?;
        if text.len() > VOCABULARY_BYTES_MAX {
            let expected = format!("at most {VOCABULARY_BYTES_MAX} bytes");
            return Err(BadInput::one(file, place, format!("{} bytes", text.len()), expected).into());
        }
        // A line may be a space: nothing but its end is cut off.
        let lines: Vec<&str> = text.lines().collect();
        settings.insert(keys.list.to_owned(), lines.into());
        settings.remove(keys.file);
    }
    Ok(())
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
        let mut missing = json!({"tasks": [{"before": [{"tokenise": {"vocabulary_file": "none.txt"}}]}]});
        assert!(read_lists(&file, &mut missing).is_err());
    }
}
