//! Which blocks of lines stand twice?

use std::collections::BTreeMap;

/// Lines of the shortest block that counts.
pub const BLOCK_LINES: usize = 6;

/// Two places with the same lines: file and line of each, counted from 1, and how many lines they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The first place.
    pub first: (String, usize),
    /// The second place.
    pub second: (String, usize),
    /// Lines that count in the block.
    pub lines: usize,
}

/// Lines that count: no blank ones, no comments, no imports, and none of punctuation alone.
fn significant(text: &str) -> Vec<(usize, &str)> {
    let counts = |line: &str| {
        let is_word = line.chars().any(char::is_alphanumeric);
        is_word && !["//", "use ", "pub use ", "mod ", "pub mod ", "#["].iter().any(|start| line.starts_with(start))
    };
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).filter(|(_, line)| counts(line)).collect()
}

/// All pairs of places where [`BLOCK_LINES`] or more lines are equal. A longer block is one pair.
#[must_use]
pub fn repeats(files: &[(String, String)]) -> Vec<Repeat> {
    let lines: Vec<Vec<(usize, &str)>> = files.iter().map(|(_, text)| significant(text)).collect();
    let mut places: BTreeMap<Vec<&str>, Vec<(usize, usize)>> = BTreeMap::new();
    for (file, lines) in lines.iter().enumerate() {
        for (at, window) in lines.windows(BLOCK_LINES).enumerate() {
            places.entry(window.iter().map(|(_, line)| *line).collect()).or_default().push((file, at));
        }
    }
    let text = |(file, at): (usize, usize)| lines[file].get(at).map(|(_, line)| *line);
    let mut found = Vec::new();
    for same in places.values() {
        for (index, &a) in same.iter().enumerate() {
            for &b in &same[index + 1..] {
                let before = |(file, at): (usize, usize)| at.checked_sub(1).and_then(|at| text((file, at)));
                let is_later_part = before(a).is_some() && before(a) == before(b);
                let overlaps = a.0 == b.0 && b.1 - a.1 < BLOCK_LINES;
                if !is_later_part && !overlaps {
                    let next = |n: usize| text((a.0, a.1 + n)).filter(|line| text((b.0, b.1 + n)) == Some(*line));
                    let shared = (0..).take_while(|n| next(*n).is_some()).count();
                    let place = |(file, at): (usize, usize)| (files[file].0.clone(), lines[file][at].0);
                    found.push(Repeat { first: place(a), second: place(b), lines: shared });
                }
            }
        }
    }
    found.sort_by_key(|repeat| (std::cmp::Reverse(repeat.lines), repeat.first.clone(), repeat.second.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_block_of_seven_lines_is_one_pair() {
        let block = "a1\nb\nc\n// why\n}\nd\ne\nf\ng\n";
        let files = [file("x", block), file("y", &format!("other\n{block}last\n"))];
        let expected = Repeat { first: ("x".into(), 1), second: ("y".into(), 2), lines: 7 };
        assert_eq!(repeats(&files), [expected]);
    }

    #[test]
    fn five_equal_lines_are_none() {
        assert_eq!(repeats(&[file("x", "a\nb\nc\nd\ne\nf1"), file("y", "a\nb\nc\nd\ne\nf2")]), []);
    }
}
