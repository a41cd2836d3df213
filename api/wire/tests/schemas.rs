//! The committed JSON Schemas are those of the reader.

use apportion_wire::json_schema;
use std::path::Path;

#[test]
fn committed_schemas_are_those_of_the_reader() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for named in json_schema::all() {
        let text = serde_json::to_string_pretty(&named.schema).expect("a schema is JSON") + "\n";
        let path = folder.join(named.file);
        if std::env::var_os("APPORTION_WRITE").is_some() {
            std::fs::create_dir_all(&folder).expect("the repository can be written");
            std::fs::write(&path, &text).expect("the repository can be written");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let write = "run APPORTION_WRITE=1 cargo test -p apportion-wire --test schemas";
        assert!(committed == text, "{} is old: {write}", path.display());
    }
}

#[test]
fn schemas_name_every_reference() {
    for named in json_schema::all() {
        let text = named.schema.to_string();
        for part in text.split("#/$defs/").skip(1) {
            let name: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
            assert!(named.schema["$defs"].get(&name).is_some(), "{}: {name}", named.file);
        }
    }
}
