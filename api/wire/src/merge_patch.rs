//! How does a JSON merge patch change a document (RFC 7386)?
//!
//! Example: `{"objective": {"budget_per_hour": 9, "mode": null}}` sets one key of the objective and removes another. A list
//! is replaced as a whole.

use serde_json::{Map, Value};

/// Changes `target` as `patch` says (RFC 7386, section 2): an object changes the keys that it names, `null` removes a key,
/// and any other value replaces.
pub fn merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    for (key, change) in changes {
        match change {
            Value::Null => {
                object.remove(&key);
            }
            change => merge_patch(object.entry(key).or_insert(Value::Null), change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The table of RFC 7386, appendix A.
    #[test]
    fn the_examples_of_the_standard_hold() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, expected) in table {
            let shown = format!("{target} with {patch}");
            merge_patch(&mut target, patch);
            assert_eq!(target, expected, "{shown}");
        }
    }
}
