//! Reads what bindgen writes: aliases, structs with their layout, constants and functions, and nothing else.

/// A name and its Rust type.
pub type Typed = (String, String);

/// A struct and the layout that the Rust compiler has confirmed.
#[derive(Debug)]
pub struct Struct {
    pub name: String,
    pub size: String,
    pub alignment: String,
    /// Name, Rust type and offset of each field.
    pub fields: Vec<(String, String, String)>,
}

/// A constant.
#[derive(Debug)]
pub struct Constant {
    pub name: String,
    pub rust_type: String,
    pub value: String,
}

/// A function.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// The Rust types of its parameters.
    pub parameters: Vec<String>,
    /// The Rust type of what it returns, if anything.
    pub returned: Option<String>,
}

/// All that a file of bindings says, in its order.
#[derive(Debug, Default)]
pub struct Bindings {
    pub aliases: Vec<Typed>,
    pub structs: Vec<Struct>,
    pub constants: Vec<Constant>,
    pub functions: Vec<Function>,
}

/// The bindings have an item of another kind, which begins with this text.
#[derive(Debug, thiserror::Error)]
#[error("this test cannot read the bindings from: {0}")]
pub struct UnknownItem(String);

impl Bindings {
    /// Reads the text of a file of bindings; an item of another kind is an error.
    pub fn read(text: &str) -> Result<Self, UnknownItem> {
        let (mut bindings, text) = (Self::default(), flat(text));
        let mut rest = text.trim();
        while !rest.is_empty() {
            rest = bindings.item(rest).ok_or_else(|| UnknownItem(rest.chars().take(120).collect()))?;
        }
        Ok(bindings)
    }

    /// Reads the first item of `text`; the rest.
    fn item<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if let Some(text) = text.strip_prefix("pub type ") {
            let (item, rest) = text.split_once(';')?;
            let (name, aliased) = item.split_once(" = ")?;
            self.aliases.push((name.to_owned(), aliased.to_owned()));
            return Some(rest.trim_start());
        }
        if let Some(text) = text.strip_prefix("pub struct ") {
            let (item, rest) = text.split_once('}')?;
            let (name, fields) = item.split_once(" {")?;
            let (layout, rest) = rest.trim_start().strip_prefix("const _: () = {")?.split_once("};")?;
            self.structs.push(structure(name, fields, layout)?);
            return Some(rest.trim_start());
        }
        if let Some(text) = text.strip_prefix("pub const ") {
            let (typed, rest) = text.split_once(" = ")?;
            let (value, rest) = rest.split_once(';')?;
            let (name, rust_type) = typed.split_once(": ")?;
            let (name, rust_type, value) = (name.to_owned(), rust_type.to_owned(), value.to_owned());
            self.constants.push(Constant { name, rust_type, value });
            return Some(rest.trim_start());
        }
        let (item, rest) = text.strip_prefix("unsafe extern \"C\" { pub fn ")?.split_once("; }")?;
        self.functions.push(function(item)?);
        Some(rest.trim_start())
    }
}

/// The text in one line, without comments and attributes.
fn flat(text: &str) -> String {
    let kept = text.lines().map(str::trim).filter(|l| !l.starts_with("#[") && !l.starts_with("/*") && !l.starts_with("//"));
    kept.collect::<Vec<_>>().join(" ")
}

/// `name: type` pairs between commas; a comma after the last.
fn typed(text: &str) -> Option<Vec<Typed>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once(": ").map(|(name, rust)| (name.trim_start_matches("pub ").into(), rust.into())))
        .collect()
}

/// `NAME(PARAMETERS) -> TYPE`, or without the arrow.
fn function(item: &str) -> Option<Function> {
    let (name, rest) = item.split_once('(')?;
    let (parameters, returned) = rest.rsplit_once(')')?;
    let parameters = typed(parameters)?.into_iter().map(|(_, rust)| rust).collect();
    let returned = returned.trim().strip_prefix("-> ").map(str::to_owned);
    Some(Function { name: name.to_owned(), parameters, returned })
}

/// The number in `... - Nusize]` after `mark`.
fn measured(layout: &str, mark: &str) -> Option<String> {
    let (_, rest) = layout.split_once(&format!("[\"{mark}\"]"))?;
    let (measure, _) = rest.split_once("usize]")?;
    Some(measure.rsplit_once("- ")?.1.to_owned())
}

/// A struct with its size, its alignment and every offset, as the bindings assert them.
fn structure(name: &str, fields: &str, layout: &str) -> Option<Struct> {
    let offset = |field: &str| measured(layout, &format!("Offset of field: {name}::{field}")).unwrap_or_default();
    let fields = typed(fields)?.into_iter().map(|(field, rust)| {
        let offset = offset(&field);
        (field, rust, offset)
    });
    let (size, alignment) =
        (measured(layout, &format!("Size of {name}"))?, measured(layout, &format!("Alignment of {name}"))?);
    Some(Struct { name: name.to_owned(), size, alignment, fields: fields.collect() })
}
