//! Where does a source have a text as an error?
//!
//! The rule reads tokens, not syntax trees, because it must see the inside of macros too.

use proc_macro2::{TokenStream, TokenTree};

/// The lines of a Rust source, counted from 1, where the error of a `Result` is a `String`. Examples: `Result<u8, String>`
/// over any number of lines, `Ok::<_, String>(1)`, and `type Err = String;` of an implementation.
///
/// # Panics
/// If the text is no Rust: the compiler would have refused it.
#[must_use]
pub fn text_errors(source: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    search(source.parse().expect("Rust"), &mut lines);
    lines
}

/// Adds the lines of these tokens and of all groups among them, in their order.
fn search(tokens: TokenStream, lines: &mut Vec<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => search(group.stream(), lines),
            TokenTree::Ident(name) if has_text_error(&name.to_string(), &tokens[at + 1..]) => {
                lines.push(name.span().start().line);
            }
            _ => {}
        }
    }
}

/// Whether a name and the tokens after it make a text an error.
fn has_text_error(name: &str, after: &[TokenTree]) -> bool {
    match name {
        "Result" | "Ok" | "Err" => arguments(after).is_some_and(|found| found.get(1).is_some_and(|error| is_text(error))),
        "type" => declared(after).is_some_and(|(name, aliased)| (name == "Err" || name == "Error") && is_text(&aliased)),
        _ => false,
    }
}

fn is_text(written: &str) -> bool {
    written == "String" || written.ends_with("::String")
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == sign)
}

/// The arguments in angle brackets that the tokens begin with, each without spaces. `::` may stand before them.
fn arguments(tokens: &[TokenTree]) -> Option<Vec<String>> {
    let mut rest = tokens.iter().skip_while(|token| is_sign(token, ':'));
    rest.next().filter(|token| is_sign(token, '<'))?;
    let (mut found, mut argument, mut depth) = (Vec::new(), String::new(), 0_usize);
    for token in rest {
        let ends_arrow = argument.ends_with('-');
        if is_sign(token, '<') {
            depth += 1;
        } else if is_sign(token, '>') && !ends_arrow {
            if depth == 0 {
                found.push(argument);
                return Some(found);
            }
            depth -= 1;
        } else if is_sign(token, ',') && depth == 0 {
            found.push(std::mem::take(&mut argument));
            continue;
        }
        argument.push_str(&token.to_string());
    }
    None
}

/// Name and type of `NAME = TYPE;`, without spaces.
fn declared(tokens: &[TokenTree]) -> Option<(String, String)> {
    let (name, rest) = tokens.split_first()?;
    let (_, rest) = rest.split_first().filter(|(sign, _)| is_sign(sign, '='))?;
    let aliased = rest.iter().take_while(|token| !is_sign(token, ';')).map(ToString::to_string).collect();
    Some((name.to_string(), aliased))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_text_error_is_found() {
        for planted in [
            "fn f() -> Result<u8, String> { Ok(1) }",
            "fn f() -> Result<Vec<(u8, u8)>, std::string::String> { Ok(vec![]) }",
            "fn f(g: impl Fn(&str) -> Result<(), String>) {}",
            "fn f() -> Option<Result<Box<dyn Fn() -> u8>, String>> { None }",
            "type Read<T> = std::result::Result<T, String>;",
            "struct S { field: Vec<Result<u8, String>> }",
            "macro_rules! m { () => { fn f() -> Result<(), String> { Ok(()) } } }",
            "fn f() { let _ = Ok::<_, String>(1); }",
            "fn f() { let _ = Err::<(), String>(String::new()); }",
            "impl std::str::FromStr for S { type Err = String; fn from_str(_: &str) -> Result<S, Self::Err> { Ok(S) } }",
            "impl TryFrom<u8> for S { type Error = String; }",
        ] {
            assert_eq!(text_errors(planted), [1_usize], "{planted}");
        }
        assert_eq!(text_errors("fn f() {}\nfn g() -> Result<\n    u8,\n    String,\n> {\n    Ok(1)\n}"), [2_usize]);
    }

    #[test]
    fn other_texts_are_no_errors() {
        for innocent in [
            "fn f() -> Result<String, Error> { todo() }",
            "fn f() -> Result<Vec<String>, Vec<String>> { todo() }",
            "fn f() -> Result<BTreeMap<u8, String>> { todo() }",
            "fn f() -> BTreeMap<u8, String> { todo() }",
            "/// `Result<u8, String>`\nconst C: &str = \"Result<u8, String>\";",
            "enum E { Error(String), Err(u8, String) }",
            "impl S for T { type Error = Error; type Item = String; }",
        ] {
            assert!(text_errors(innocent).is_empty(), "{innocent}");
        }
    }
}
