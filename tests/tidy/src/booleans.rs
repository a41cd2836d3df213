//! Which functions take a boolean? A caller writes `true` there, and its reader does not know the meaning.

use crate::shape::is_test;
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function with a boolean parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BooleanFunction {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, counted from 1.
    pub line: usize,
    /// The types of its boolean parameters are `bool`, `&bool` or `&mut bool`. These are their names.
    pub parameters: Vec<String>,
}

/// All functions of a source text that take a boolean, methods and inner functions included.
///
/// Tests are left out. So are the methods of `impl Trait for Type`, because the trait prescribes their parameters. The
/// trait's own declaration counts.
///
/// # Panics
/// If the text is not Rust: the compiler would have refused it.
#[must_use]
pub fn boolean_functions(source: &str) -> Vec<BooleanFunction> {
    let mut found = BooleanFunctions(Vec::new());
    found.visit_file(&syn::parse_file(source).expect("Rust"));
    found.0
}

/// Whether a file holds tests or their helpers: it lies in a folder `tests`, or its module is declared for tests only.
/// `files` are all sources: (path from the root, text).
///
/// # Panics
/// If a text is not Rust.
#[must_use]
pub fn test_files(files: &[(String, String)]) -> BTreeSet<String> {
    let modules: Vec<String> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_declared =
        |path: &str| modules.iter().any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")));
    let is_test_file = |path: &str| path.split('/').any(|folder| folder == "tests") || is_declared(path);
    files.iter().map(|(path, _)| path).filter(|path| is_test_file(path)).cloned().collect()
}

/// The modules in files of their own that a file declares for tests only, as paths without an ending.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    // Most files declare none. To parse all of them takes seconds.
    if !text.lines().any(|line| line.contains("mod ") && line.ends_with(';')) {
        return Vec::new();
    }
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let base = if ["mod", "lib", "main"].contains(&name) { folder } else { stem };
    let file = syn::parse_file(text).expect("Rust");
    let declared = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    declared.map(|name| format!("{base}/{name}")).collect()
}

struct BooleanFunctions(Vec<BooleanFunction>);

impl BooleanFunctions {
    fn add(&mut self, signature: &syn::Signature) {
        let parameters: Vec<String> = signature.inputs.iter().filter_map(boolean_name).collect();
        if !parameters.is_empty() {
            let line = signature.fn_token.span().start().line;
            self.0.push(BooleanFunction { name: signature.ident.to_string(), line, parameters });
        }
    }
}

/// The name of a boolean parameter; `None` for every other parameter.
fn boolean_name(input: &syn::FnArg) -> Option<String> {
    let syn::FnArg::Typed(parameter) = input else { return None };
    let is_boolean = match &*parameter.ty {
        syn::Type::Reference(reference) => is_bool(&reference.elem),
        plain => is_bool(plain),
    };
    let name = match &*parameter.pat {
        syn::Pat::Ident(pattern) => pattern.ident.to_string(),
        _ => "_".to_owned(),
    };
    is_boolean.then_some(name)
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

impl<'a> Visit<'a> for BooleanFunctions {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.add(&item.sig);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        if item.trait_.is_none() {
            for member in &item.items {
                if let syn::ImplItem::Fn(method) = member
                    && !is_test(&method.attrs)
                {
                    self.add(&method.sig);
                }
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        self.add(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        fn plan(fast: bool, count: u32) {}
        struct S;
        impl S {
            fn set_open(&mut self, open: bool) {}
            fn is_open(&self) -> bool { true }
        }
        trait Door { fn lock(&self, twice: &mut bool); }
        impl Door for S { fn lock(&self, twice: &mut bool) { fn inner(deep: bool) {} } }
        #[cfg(test)]
        mod tests { fn helper(whole: bool) {} }
        #[test]
        fn check(b: bool) {}
    ";

    #[test]
    fn planted_booleans_are_found_outside_tests() {
        let found = boolean_functions(SOURCE);
        let rows: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.parameters.join(" "))).collect();
        let expected = [("plan", 2, "fast"), ("set_open", 5, "open"), ("lock", 8, "twice"), ("inner", 9, "deep")];
        assert_eq!(rows, expected.map(|(name, line, parameters)| (name, line, parameters.to_owned())));
    }

    #[test]
    fn modules_that_are_declared_for_tests_are_test_files() {
        let files = [
            ("a/src/lib.rs", "mod room; #[cfg(test)] mod fixtures;"),
            ("a/src/fixtures.rs", ""),
            ("a/src/room.rs", "#[cfg(test)] mod drawn; mod real;"),
            ("a/src/room/drawn/mod.rs", ""),
            ("a/src/room/real.rs", ""),
            ("a/tests/whole.rs", ""),
        ];
        let found = test_files(&files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let expected = ["a/src/fixtures.rs", "a/src/room/drawn/mod.rs", "a/tests/whole.rs"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
}
