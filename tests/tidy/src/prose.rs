//! Which sentences does a text have, and which lines and words of it break a rule of STYLE.md?

/// Most words of a sentence. Writers aim at 30.
pub const WORDS_MAX: usize = 40;
/// Most columns of a line in a Rust comment.
pub const COLUMNS_MAX: usize = 124;
/// Words and phrases that prose does not use, and a plainer one for each. A `*` stands for one word.
pub const BANNED: &[(&str, &str)] = &[
    ("whom", "the noun"),
    ("whose own", "the noun"),
    ("whoever", "the noun"),
    ("whatsoever", "any"),
    ("hitherto", "until then"),
    ("thereof", "of it"),
    ("wherein", "in which"),
    ("heretofore", "before"),
    ("notwithstanding", "despite"),
    ("over so many", "divided by the number, named"),
    ("so many to so many", "the two numbers, named"),
    ("so many * over", "the number, named"),
    ("none of ours", "unknown"),
    ("that is none", "the noun: malformed, missing"),
    ("that are none", "the noun: malformed, missing"),
    ("nobody is at it", "it waits"),
    ("by the way", "leave it out"),
    ("as the case may be", "name the cases"),
];

/// A piece of prose with the line on which it begins, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Line of its first word.
    pub line: usize,
    /// Its words, with single spaces.
    pub text: String,
}

/// Paragraphs, list items, headings and table cells of a Markdown text. Code blocks and comments are left out.
#[must_use]
pub fn passages(markdown: &str) -> Vec<Passage> {
    let mut found = Vec::new();
    let mut open: Option<Passage> = None;
    let mut fence: Option<String> = None;
    let mut after_blank = true;
    for (index, raw) in markdown.lines().enumerate() {
        let line = raw.trim();
        if let Some(mark) = &fence {
            if line.starts_with(mark.as_str()) {
                fence = None;
            }
            continue;
        }
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        if ticks.len() >= 3 {
            found.extend(open.take());
            fence = Some(ticks);
            continue;
        }
        let is_indented_code = after_blank && raw.starts_with("    ") && list_item(line).is_none() && open.is_none();
        after_blank = line.is_empty();
        if line.is_empty() || is_indented_code || line.starts_with("<!--") {
            found.extend(open.take());
            after_blank |= is_indented_code;
        } else if line.starts_with('|') {
            found.extend(open.take());
            let cells = line.trim_matches('|').split('|').map(str::trim).filter(|cell| !cell.is_empty());
            found.extend(cells.map(|cell| Passage { line: index + 1, text: cell.to_owned() }));
        } else if let Some(rest) = line.strip_prefix('#') {
            found.extend(open.take());
            found.push(Passage { line: index + 1, text: rest.trim_start_matches('#').trim().to_owned() });
        } else if let Some(rest) = list_item(line) {
            found.extend(open.replace(Passage { line: index + 1, text: rest.to_owned() }));
        } else if let Some(passage) = &mut open {
            passage.text.push(' ');
            passage.text.push_str(line.trim_start_matches("> "));
        } else {
            open = Some(Passage { line: index + 1, text: line.trim_start_matches("> ").to_owned() });
        }
    }
    found.extend(open);
    found
}

/// The text of a list item, without its mark.
fn list_item(line: &str) -> Option<&str> {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    let numbered = (digits > 0).then(|| &line[digits..]).and_then(|rest| rest.strip_prefix(". "));
    numbered.or_else(|| line.strip_prefix("- ")).or_else(|| line.strip_prefix("* "))
}

/// The passages of a Rust source's documentation (`//!` and `///`).
#[must_use]
pub fn documentation(source: &str) -> Vec<Passage> {
    let mut found = Vec::new();
    let mut block = String::new();
    let mut begins = 0;
    for (index, line) in source.lines().chain([""]).enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///").filter(|rest| !rest.starts_with('/')));
        if let Some(text) = text {
            if block.is_empty() {
                begins = index;
            }
            block.push_str(text.strip_prefix(' ').unwrap_or(text));
            block.push('\n');
        } else if !block.is_empty() {
            let inside = passages(&block).into_iter();
            found.extend(inside.map(|passage| Passage { line: passage.line + begins, ..passage }));
            block.clear();
        }
    }
    found
}

/// The sentences of a passage, each with the number of its words. Inline code is one word.
#[must_use]
pub fn sentences(text: &str) -> Vec<(String, usize)> {
    let text = plain(text);
    let mut found = Vec::new();
    let mut sentence = Vec::new();
    for word in text.split_whitespace() {
        sentence.push(word);
        if ends_sentence(word) {
            found.push(std::mem::take(&mut sentence));
        }
    }
    found.push(sentence);
    let is_word = |word: &&&str| word.chars().any(char::is_alphanumeric);
    let counted = found.into_iter().map(|words| (words.join(" "), words.iter().filter(is_word).count()));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// Whether a word ends a sentence: it ends with a full stop and is no abbreviation.
fn ends_sentence(word: &str) -> bool {
    const ABBREVIATIONS: [&str; 7] = ["e.g.", "i.e.", "vs.", "Fig.", "Eq.", "Sec.", "No."];
    let bare = word.trim_end_matches([')', '"', '*', '_', '”', '\'']);
    bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&bare.trim_start_matches('('))
}

/// The text with each piece of inline code as one word and links without their targets.
fn plain(text: &str) -> String {
    let mut result = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 { result.push_str("code") } else { result.push_str(part) }
    }
    while let Some(at) = result.find("](") {
        let end = result[at..].find(')').map_or(result.len(), |length| at + length + 1);
        result.replace_range(at..end, "");
    }
    result.replace('[', "")
}

/// The banned phrases that a passage has.
#[must_use]
pub fn banned(text: &str) -> Vec<&'static str> {
    let text = plain(text).to_lowercase();
    let words: Vec<&str> = text.split_whitespace().map(|w| w.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let has = |phrase: &str| {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        words.windows(wanted.len()).any(|window| window.iter().zip(&wanted).all(|(word, w)| *w == "*" || word == w))
    };
    BANNED.iter().map(|(phrase, _)| *phrase).filter(|phrase| has(phrase)).collect()
}

/// The lines of a Rust source that are comments and too wide, counted from 1.
#[must_use]
pub fn wide_comments(source: &str) -> Vec<usize> {
    let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > COLUMNS_MAX;
    source.lines().enumerate().filter(|(_, line)| is_wide(line)).map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_are_paragraphs_items_headings_and_cells() {
        let text = "# Head\n\nOne\ntwo.\n\n- item\n  goes on\n- next\n\n| a | b |\n|---|---|\n\n```sh\nnot this\n```\n\n    nor this\n";
        let found: Vec<(usize, String)> = passages(text).into_iter().map(|p| (p.line, p.text)).collect();
        let expected = [(1, "Head"), (3, "One two."), (6, "item goes on"), (8, "next"), (10, "a"), (10, "b")];
        let found: Vec<(usize, &str)> = found.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(found[..6], expected);
        assert!(found[6..].iter().all(|(_, text)| text.starts_with("---")), "{found:?}");
    }

    #[test]
    fn sentences_end_at_full_stops() {
        let counts = |text: &str| sentences(text).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(counts("It is 3.5 of `a b c`. And (e.g. this) [link](a b c) goes on!"), [5, 6]);
        assert_eq!(counts("One two: three; four"), [4]);
    }

    #[test]
    fn documentation_has_the_sources_lines() {
        let source = "//! Head\n//! goes on.\n\nfn f() {}\n\n    /// Deep.\n    // not this\n";
        let found: Vec<(usize, String)> = documentation(source).into_iter().map(|p| (p.line, p.text)).collect();
        assert_eq!(found, [(1, "Head goes on.".to_owned()), (6, "Deep.".to_owned())]);
    }

    #[test]
    fn banned_phrases_are_whole_words() {
        assert_eq!(banned("To whom it may concern"), ["whom"]);
        assert_eq!(banned("so many queries over a second"), ["so many * over"]);
        assert!(banned("`whom` and whomever").is_empty());
    }
}
