//! Which modules does a crate have, which of them does each use, and how large are its functions?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, counted from 1.
    pub line: usize,
    /// Lines from its `fn` to its closing brace.
    pub lines: usize,
    /// Parameters without `self`.
    pub parameters: usize,
}

/// All functions of a source text, methods and inner functions included.
///
/// # Panics
/// If the text is no Rust: the compiler would have refused it.
#[must_use]
pub fn functions(source: &str) -> Vec<Function> {
    let mut found = Functions(Vec::new());
    found.visit_file(&syn::parse_file(source).expect("Rust"));
    found.0
}

struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.fn_token.span().start().line, block.brace_token.span.close().end().line);
        let parameters = signature.inputs.iter().filter(|i| matches!(i, syn::FnArg::Typed(_))).count();
        self.0.push(Function { name: signature.ident.to_string(), line: first, lines: last - first + 1, parameters });
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Path of a module in its crate; the crate itself is the empty path.
pub type Module = Vec<String>;

/// The modules of a crate, and the modules that each of them uses.
#[derive(Debug, Default)]
pub struct Crate {
    /// Modules that a module names in its imports and paths, each with one line that does so. Tests are left out.
    pub uses: BTreeMap<Module, BTreeMap<Module, usize>>,
    /// What a module re-exports: name to path in the crate.
    exports: BTreeMap<(Module, String), Module>,
}

/// Reads the modules of a crate from its files: (path below `src`, text).
///
/// # Panics
/// If a text is no Rust.
#[must_use]
pub fn modules(files: &[(String, String)]) -> Crate {
    let parsed: Vec<(Module, syn::File)> =
        files.iter().map(|(path, text)| (module_of(path), syn::parse_file(text).expect("Rust"))).collect();
    let mut paths = Vec::new();
    let mut found = Crate::default();
    for (module, file) in &parsed {
        let mut visitor = Paths { module: module.clone(), found: Vec::new(), exports: Vec::new() };
        visitor.visit_file(file);
        found.uses.entry(module.clone()).or_default();
        paths.extend(visitor.found);
        for (name, path) in visitor.exports {
            found.exports.insert((module.clone(), name), path);
        }
    }
    for (module, path, line) in paths {
        let is_test = |module: &Module| module.iter().any(|name| name == "tests");
        if let Some(used) = found.resolve(&path, 0)
            && used != module
            && !is_test(&module)
        {
            found.uses.entry(module).or_default().entry(used).or_insert(line);
        }
    }
    found
}

impl Crate {
    /// The module in which an item lies that a path of the crate names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<Module> {
        let mut module = Module::new();
        for (at, name) in path.iter().enumerate() {
            module.push(name.clone());
            if self.uses.contains_key(&module) {
                continue;
            }
            module.pop();
            let Some(export) = self.exports.get(&(module.clone(), name.clone())) else { break };
            if depth > 8 {
                return None;
            }
            let rest: Vec<String> = export.iter().chain(&path[at + 1..]).cloned().collect();
            return self.resolve(&rest, depth + 1);
        }
        Some(module)
    }

    /// Pairs of modules (the upper one first) where the lower module uses an item of its own ancestor.
    #[must_use]
    pub fn upward(&self) -> Vec<(Module, Module, usize)> {
        let pairs = self.uses.iter().flat_map(|(from, used)| used.iter().map(move |(to, line)| (to, from, *line)));
        let is_above = |(to, from, _): &(&Module, &Module, usize)| from.len() > to.len() && from.starts_with(to);
        pairs.filter(is_above).map(|(to, from, line)| (to.clone(), from.clone(), line)).collect()
    }

    /// Sets of sibling modules that use each other, directly or through others.
    #[must_use]
    pub fn circles(&self) -> Vec<BTreeSet<Module>> {
        let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, used) in &self.uses {
            for to in used.keys() {
                let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if shared < from.len() && shared < to.len() {
                    edges.entry(from[..=shared].to_vec()).or_default().insert(to[..=shared].to_vec());
                }
            }
        }
        let reach = |start: &Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start.clone()]);
            while let Some(at) = open.pop() {
                for next in edges.get(&at).into_iter().flatten() {
                    if seen.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> = edges.keys().map(|at| (at, reach(at))).collect();
        let circle = |at: &Module| -> BTreeSet<Module> {
            reached[at].iter().filter(|to| reached.get(to).is_some_and(|back| back.contains(at))).cloned().collect()
        };
        let circles: BTreeSet<BTreeSet<Module>> = edges.keys().map(circle).filter(|c| !c.is_empty()).collect();
        circles.into_iter().collect()
    }
}

/// `a/b.rs`, `a/b/mod.rs` are `[a, b]`; `lib.rs` and `main.rs` are the crate.
fn module_of(path: &str) -> Module {
    let stem = Path::new(path).with_extension("");
    let mut module: Module = stem.iter().filter_map(|part| part.to_str()).map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || (module.len() == 1 && (last == "lib" || last == "main"))) {
        module.pop();
    }
    module
}

/// Whether other modules can use an import.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Import {
    Private,
    Exported,
}

/// The paths of a file that begin with `crate`, `super` or `self`.
struct Paths {
    module: Module,
    found: Vec<(Module, Module, usize)>,
    exports: Vec<(String, Module)>,
}

impl Paths {
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut base = match path.first()?.as_str() {
            "crate" => Module::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        for name in &path[1..] {
            if name == "super" {
                base.pop()?;
            } else {
                base.push(name.clone());
            }
        }
        Some(base)
    }

    fn add_tree(&mut self, tree: &syn::UseTree, before: &[String], import: Import) {
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree, &[before, &[path.ident.to_string()]].concat(), import),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_tree(item, before, import)),
            syn::UseTree::Name(name) => self.add_leaf(before, &name.ident, &name.ident, import),
            syn::UseTree::Rename(rename) => self.add_leaf(before, &rename.ident, &rename.rename, import),
            syn::UseTree::Glob(glob) => self.add(before, glob.span().start().line),
        }
    }

    fn add_leaf(&mut self, before: &[String], name: &syn::Ident, exported: &syn::Ident, import: Import) {
        let path = if name == "self" { before.to_vec() } else { [before, &[name.to_string()]].concat() };
        // A module re-exports the items of its children without `self`.
        let is_export = import == Import::Exported;
        let local = is_export && !["crate", "self", "super", "std"].contains(&path[0].as_str());
        let path = if local { [vec!["self".to_owned()], path].concat() } else { path };
        if is_export && let Some(target) = self.absolute(&path) {
            self.exports.push((exported.to_string(), target));
        }
        self.add(&path, name.span().start().line);
    }

    fn add(&mut self, path: &[String], line: usize) {
        if let Some(path) = self.absolute(path) {
            self.found.push((self.module.clone(), path, line));
        }
    }
}

/// Whether an item is compiled for tests only.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    let text = |a: &syn::Attribute| a.meta.require_list().map(|l| l.tokens.to_string()).unwrap_or_default();
    attributes.iter().any(|a| a.path().is_ident("test") || (a.path().is_ident("cfg") && text(a).contains("test")))
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            let import = match item.vis {
                syn::Visibility::Inherited => Import::Private,
                _ => Import::Exported,
            };
            self.add_tree(&item.tree, &[], import);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if is_test(&item.attrs) || item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names, path.span().start().line);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Crate {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::inner::Thing;"),
            ("a/mod.rs", "pub mod inner; use crate::b::f; pub fn top() {}"),
            ("a/inner.rs", "use super::top; pub struct Thing;"),
            ("b.rs", "use crate::c::g; pub fn f() {}"),
            ("c.rs", "pub fn g() { let _ = crate::Thing; }\n#[cfg(test)] mod tests { use crate::b::f; }"),
        ];
        modules(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    }

    #[test]
    fn a_circle_through_a_reexport_is_found() {
        let names = |circle: &BTreeSet<Module>| circle.iter().map(|m| m.join("::")).collect::<Vec<_>>();
        assert_eq!(example().circles().iter().map(names).collect::<Vec<_>>(), [["a", "b", "c"]]);
    }

    #[test]
    fn a_use_of_the_parent_runs_up() {
        let inner: Module = vec!["a".into(), "inner".into()];
        assert_eq!(example().upward(), [(vec!["a".to_owned()], inner, 1)]);
    }

    #[test]
    fn functions_have_lines_and_parameters() {
        let found = functions("impl A {\n    fn f(&self, a: u8, b: u8) {\n        let c = 1;\n    }\n}\nfn g() {}");
        let row = |f: &Function| (f.name.clone(), f.line, f.lines, f.parameters);
        assert_eq!(found.iter().map(row).collect::<Vec<_>>(), [("f".into(), 2, 3, 2), ("g".into(), 6, 1, 0)]);
    }
}
