//! Which public types does a source define, and which names do two of them share?

use crate::booleans::test_files;
use crate::shape::is_test;
use std::collections::BTreeMap;
use syn::visit::{self, Visit};

/// A definition of a type: a struct, an enum, a union, a trait or a type alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// Its name.
    pub name: String,
    /// Line of its name, counted from 1.
    pub line: usize,
}

/// Types of a source text that other modules can use, outside tests. A type that a macro makes is found if its definition
/// is written out in the call of the macro.
///
/// # Panics
/// If the text is no Rust.
#[must_use]
pub fn public_types(source: &str) -> Vec<TypeName> {
    let mut types = Types(Vec::new());
    types.visit_file(&syn::parse_file(source).expect("Rust"));
    types.0
}

/// Names of two or more public types, each with its places as `file:line`. `files` are all sources: (path from the root,
/// text). Files of tests are left out.
///
/// # Panics
/// If a text is no Rust.
#[must_use]
pub fn shared_names(files: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let tests = test_files(files);
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| !tests.contains(path)) {
        for t in public_types(text) {
            places.entry(t.name).or_default().push(format!("{path}:{}", t.line));
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

struct Types(Vec<TypeName>);

impl Types {
    fn add(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute], name: &syn::Ident) {
        if !matches!(visibility, syn::Visibility::Inherited) && !is_test(attributes) {
            self.0.push(TypeName { name: name.to_string(), line: name.span().start().line });
        }
    }

    /// Definitions that are written out in the call of a macro.
    fn add_written_out(&mut self, tokens: proc_macro2::TokenStream) {
        let mut is_public = false;
        let mut is_definition = false;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(word) => {
                    if is_definition {
                        self.0.push(TypeName { name: word.to_string(), line: word.span().start().line });
                    }
                    let is_keyword = ["struct", "enum", "union", "trait", "type"].iter().any(|keyword| word == keyword);
                    is_definition = is_public && is_keyword;
                    is_public = word == "pub" || (is_public && word == "unsafe");
                }
                // The parentheses of `pub(crate)`.
                proc_macro2::TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Parenthesis => {
                    is_definition = false;
                }
                proc_macro2::TokenTree::Group(group) => {
                    (is_public, is_definition) = (false, false);
                    if group.delimiter() == proc_macro2::Delimiter::Brace {
                        self.add_written_out(group.stream());
                    }
                }
                _ => (is_public, is_definition) = (false, false),
            }
        }
    }
}

impl<'a> Visit<'a> for Types {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.add(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.add(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_union(&mut self, item: &'a syn::ItemUnion) {
        self.add(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.add(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.add(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_macro(&mut self, item: &'a syn::ItemMacro) {
        // The rules of a macro have a name; a call of a macro has none.
        if item.ident.is_none() {
            self.add_written_out(item.mac.tokens.clone());
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    // Nobody else can use the types of a function's body.
    fn visit_block(&mut self, _: &'a syn::Block) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(files: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let files: Vec<(String, String)> = files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect();
        shared_names(&files)
    }

    #[test]
    fn a_name_of_two_public_types_is_found_with_both_places() {
        let found = shared(&[
            ("a/src/lib.rs", "mod x;\n\npub(crate) enum Choice { A }"),
            ("a/src/x.rs", "pub struct Group;"),
            ("b/src/lib.rs", "record! {\n    /// A choice.\n    pub struct Choice { pub a: u8 => required, }\n}"),
        ]);
        let places = vec!["a/src/lib.rs:3".to_owned(), "b/src/lib.rs:3".to_owned()];
        assert_eq!(found, BTreeMap::from([("Choice".to_owned(), places)]));
    }

    #[test]
    fn private_types_and_types_of_tests_may_share_names() {
        let others = "struct Choice;\n#[cfg(test)]\nmod tests { pub struct Choice; }\n#[cfg(test)]\nmod cases;\n\
                      fn f() { pub struct Choice; }\npub use a::Choice as Other;";
        let found = shared(&[
            ("a/src/lib.rs", "pub struct Choice;"),
            ("a/tests/whole.rs", "pub struct Choice;"),
            ("b/src/lib.rs", others),
            ("b/src/cases/rows.rs", "pub struct Choice;"),
        ]);
        assert_eq!(found, BTreeMap::new());
    }
}
