//! Compares bindings with a header, by a C program of which every line is one comparison.

use crate::read::{Bindings, Struct};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The header that `highs-sys` makes its bindings of, below the folder of headers.
const HEADER: &str = "interfaces/highs_c_api.h";
/// Declared `static` in the header: no library has it, so bindgen leaves it out.
const INLINE: &str = "Highs_compilationDate";

/// The version that the headers of a folder belong to.
pub fn version(include: &Path) -> [i32; 3] {
    let text = std::fs::read_to_string(include.join("HConfig.h")).expect("HConfig.h");
    ["MAJOR", "MINOR", "PATCH"].map(|part| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define HIGHS_VERSION_{part} ")));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(-1)
    })
}

/// The differences between the bindings and the header in the folder `include`, one text each.
pub fn differences(bindings: &Bindings, include: &Path) -> Vec<String> {
    let mut found = layouts(bindings);
    let names = names(include);
    let bound: BTreeSet<String> = all(bindings).map(str::to_owned).collect();
    found.extend(names.difference(&bound).map(|name| format!("{name} is in the header only")));
    found.extend(bound.difference(&names).map(|name| format!("{name} is in the bindings only")));
    // A program that names what the header lacks would not compile.
    if found.is_empty() {
        found.extend(run(&program(bindings), include));
    }
    found
}

/// Fields whose offset the bindings do not tell.
fn layouts(bindings: &Bindings) -> Vec<String> {
    let fields =
        |s: &Struct| s.fields.iter().filter(|f| f.2.is_empty()).map(|f| format!("{}::{}", s.name, f.0)).collect::<Vec<_>>();
    bindings.structs.iter().flat_map(fields).map(|field| format!("{field} has no layout in the bindings")).collect()
}

/// Every name that the bindings give.
fn all(bindings: &Bindings) -> impl Iterator<Item = &str> {
    let aliases = bindings.aliases.iter().map(|(name, _)| name.as_str());
    let structs = bindings.structs.iter().map(|s| s.name.as_str());
    let constants = bindings.constants.iter().map(|c| c.name.as_str());
    aliases.chain(structs).chain(constants).chain(bindings.functions.iter().map(|f| f.name.as_str()))
}

/// Every name of HiGHS that the header declares: after the preprocessor all that is left of it are declarations.
fn names(include: &Path) -> BTreeSet<String> {
    let mut command = Command::new("cc");
    let output = command.arg("-I").arg(include).args(["-E", "-P"]).arg(include.join(HEADER)).output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| (word.starts_with("Highs") || word.starts_with("kHighs")) && *word != INLINE;
    words.filter(ours).map(str::to_owned).collect()
}

/// The C type of a Rust type. Names of the bindings get a prefix: the program declares them as the bindings do.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(to));
    }
    match rust.trim_start_matches("::std::os::raw::") {
        "c_void" => "void".to_owned(),
        "c_char" => "char".to_owned(),
        "c_int" => "int".to_owned(),
        "c_uint" => "unsigned int".to_owned(),
        "f64" => "double".to_owned(),
        "f32" => "float".to_owned(),
        "i64" => "int64_t".to_owned(),
        "bool" => "_Bool".to_owned(),
        name => format!("bound_{name}"),
    }
}

/// A declaration of `name` as a type: that of a function pointer where `rust` is one.
fn typedef(name: &str, rust: &str) -> String {
    let called = rust.strip_prefix("::std::option::Option<").and_then(|r| r.trim().strip_prefix("unsafe extern \"C\" fn("));
    let Some((parameters, _)) = called.and_then(|c| c.rsplit_once(')')) else {
        return format!("typedef {} bound_{name};", c_type(rust));
    };
    let parameters = parameters.split(',').map(str::trim).filter(|p| !p.is_empty());
    let types: Vec<String> = parameters.map(|p| c_type(p.split_once(": ").map_or(p, |(_, rust)| rust))).collect();
    format!("typedef void (*bound_{name})({});", types.join(", "))
}

/// A C program that prints what differs, a line each.
fn program(bindings: &Bindings) -> String {
    let mut text = format!("#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n#include \"{HEADER}\"\n");
    text += "#define CHECK(what, holds) if (!(holds)) puts(what)\n#define SAME __builtin_types_compatible_p\n";
    for s in &bindings.structs {
        let _ = writeln!(text, "typedef {} bound_{};", s.name, s.name);
    }
    for (name, rust) in &bindings.aliases {
        let _ = writeln!(text, "{}", typedef(name, rust));
    }
    text += "int main(void) {\n";
    for (name, _) in &bindings.aliases {
        let _ = writeln!(text, "CHECK(\"{name}: type\", SAME(bound_{name}, {name}));");
    }
    for s in &bindings.structs {
        compare_struct(s, &mut text);
    }
    for c in &bindings.constants {
        let name = &c.name;
        if let Some(bytes) = c.value.strip_prefix('b') {
            let _ = writeln!(text, "CHECK(\"{name}: value\", strcmp({name}, {bytes}) == 0);");
        } else {
            let _ = writeln!(text, "CHECK(\"{name}: value\", {name} == {});", c.value);
            let _ = writeln!(text, "CHECK(\"{name}: type\", SAME(__typeof__({name}), {}));", c_type(&c.rust_type));
        }
    }
    for f in &bindings.functions {
        let parameters: Vec<String> = f.parameters.iter().map(|p| c_type(p)).collect();
        let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
        let returned = f.returned.as_deref().map_or("void".to_owned(), c_type);
        let name = &f.name;
        let _ = writeln!(text, "CHECK(\"{name}: type\", SAME(__typeof__(&{name}), {returned} (*)({parameters})));");
    }
    text + "return 0;\n}\n"
}

fn compare_struct(s: &Struct, text: &mut String) {
    let Struct { name, size, alignment, fields } = s;
    let _ = writeln!(text, "CHECK(\"{name}: size\", sizeof({name}) == {size});");
    let _ = writeln!(text, "CHECK(\"{name}: alignment\", _Alignof({name}) == {alignment});");
    for (field, rust, offset) in fields {
        let of = format!("__typeof__((({name} *)0)->{field})");
        let _ = writeln!(text, "CHECK(\"{name}::{field}: offset\", offsetof({name}, {field}) == {offset});");
        let _ = writeln!(text, "CHECK(\"{name}::{field}: type\", SAME({of}, {}));", c_type(rust));
    }
}

/// The lines that a C program prints, or why it does not compile.
fn run(program: &str, include: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, made) = (folder.path().join("compare.c"), folder.path().join("compare"));
    std::fs::write(&source, program).expect("writes");
    let compiler =
        Command::new("cc").args(["-std=gnu11", "-O0", "-I"]).arg(include).arg(&source).arg("-o").arg(&made).output();
    let compiled = compiler.expect("cc runs");
    let lines = if compiled.status.success() {
        let output = Command::new(&made).output().expect("the program runs");
        assert!(output.status.success(), "{}", output.status);
        output.stdout
    } else {
        compiled.stderr
    };
    String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect()
}
