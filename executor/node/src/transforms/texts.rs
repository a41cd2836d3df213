//! How do classes become texts, and texts numbers?

use super::fault::{GLUE_BYTES_MAX, TransformFault, bytes_of};
use super::numbers::{floats, of_int64s};
use crate::tensor::{Datatype, Tensor, int64s, texts};
use apportion_domain::transform::{DecodeTextStep, LetterCase, TextDecoding, TokeniseStep, WordSplit};

/// Longest word that is cut into pieces, in characters. A longer one is unknown.
const WORD_CHARACTERS_MAX: usize = 100;

/// Position of the first of the highest scores; NaN is no score.
fn highest(scores: &[f32]) -> i64 {
    let mut best = 0;
    for (at, score) in scores.iter().enumerate() {
        if *score > scores[best] || (scores[best].is_nan() && !score.is_nan()) {
            best = at;
        }
    }
    best as i64
}

/// The text of one row's classes.
fn decoded(step: &DecodeTextStep, classes: &[i64]) -> Result<String, TransformFault> {
    let alphabet = step.alphabet.texts();
    let is_ctc = step.decoding == TextDecoding::Ctc;
    let last = if is_ctc { alphabet.len() } else { alphabet.len().saturating_sub(1) };
    let mut text = String::new();
    let mut before = None;
    for &class in classes {
        let unknown = || TransformFault::Class { name: step.of.clone(), found: class, last };
        let number = usize::try_from(class).ok().filter(|number| *number <= last).ok_or_else(unknown)?;
        let is_repeated = is_ctc && before == Some(number);
        before = Some(number);
        let blank = step.blank as usize;
        if is_repeated || (is_ctc && number == blank) {
            continue;
        }
        text.push_str(&alphabet[if is_ctc && number > blank { number - 1 } else { number }]);
    }
    Ok(text)
}

pub(super) fn decode_text(step: &DecodeTextStep, of: &Tensor) -> Result<Tensor, TransformFault> {
    let inner = &of.shape[1..];
    let (classes, places) = match int64s(of) {
        Some(classes) => (classes, inner.first().copied().unwrap_or(1)),
        None => {
            let width = inner.last().copied().unwrap_or(1);
            let classes = floats(of).chunks(width.max(1)).map(highest).collect();
            (classes, inner[..inner.len().saturating_sub(1)].iter().product())
        }
    };
    let mut data = Vec::new();
    for row in 0..of.rows() {
        let text = decoded(step, &classes[row * places..(row + 1) * places])?;
        let length = u32::try_from(text.len()).map_err(|_| TransformFault::Bytes(step.to.clone()))?;
        data.extend_from_slice(&length.to_le_bytes());
        data.extend_from_slice(text.as_bytes());
        if data.len() > GLUE_BYTES_MAX {
            return Err(TransformFault::Bytes(step.to.clone()));
        }
    }
    let shape = vec![of.rows()];
    Ok(Tensor { name: step.to.clone(), datatype: Datatype::Bytes, shape, data: data.into() })
}

/// The words of a text: between white space, and for pieces each ASCII punctuation mark alone too.
fn words(text: &str, split: WordSplit) -> Vec<&str> {
    let mut found = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while let Some(at) = rest.find(|c: char| c.is_ascii_punctuation()).filter(|_| split == WordSplit::Wordpiece) {
            let (before, mark) = rest.split_at(at);
            found.extend([before, &mark[..1]].into_iter().filter(|word| !word.is_empty()));
            rest = &mark[1..];
        }
        found.extend(Some(rest).filter(|word| !word.is_empty()));
    }
    found
}

/// The longest pieces of a word from its start on; none if one of its parts is in no piece.
fn pieces(step: &TokeniseStep, word: &str) -> Option<Vec<usize>> {
    let ends: Vec<usize> = word.char_indices().map(|(at, _)| at).skip(1).chain([word.len()]).collect();
    if ends.len() > WORD_CHARACTERS_MAX {
        return None;
    }
    let (mut found, mut start) = (Vec::new(), 0);
    while start < word.len() {
        let prefix = if start > 0 { "##" } else { "" };
        let known = |end: &usize| Some((step.vocabulary.position(&format!("{prefix}{}", &word[start..*end]))?, *end));
        let longest = start + step.vocabulary.longest().saturating_sub(prefix.len());
        let (token, end) = ends.iter().rev().filter(|end| (start + 1..=longest).contains(*end)).find_map(known)?;
        found.push(token);
        start = end;
    }
    Some(found)
}

/// The numbers of a text's tokens, at most `most`.
fn tokens(step: &TokeniseStep, text: &str, most: usize) -> Vec<usize> {
    let lower = match step.letters {
        LetterCase::Keep => text.to_owned(),
        LetterCase::Lower => text.to_lowercase(),
    };
    let unknown = step.vocabulary.position(&step.unknown).unwrap_or(0);
    let mut found = Vec::new();
    for word in words(&lower, step.split) {
        if found.len() >= most {
            break;
        }
        match step.split {
            WordSplit::Whitespace => found.push(step.vocabulary.position(word).unwrap_or(unknown)),
            WordSplit::Wordpiece => found.extend(pieces(step, word).unwrap_or_else(|| vec![unknown])),
        }
    }
    found.truncate(most);
    found
}

/// What [`tokenise`] makes: `to`, then the mask and the types where they are asked for.
pub(super) fn tokenise(step: &TokeniseStep, of: &Tensor) -> Result<Vec<Tensor>, TransformFault> {
    let (rows, length) = (of.rows(), step.length as usize);
    bytes_of(&step.to, Datatype::Int64, rows, &[length])?;
    let special = |token: Option<&String>| token.and_then(|token| step.vocabulary.position(token));
    let (start, end) = (special(step.start.as_ref()), special(step.end.as_ref()));
    let padding = special(Some(&step.padding)).unwrap_or(0);
    let most = length - start.iter().count() - end.iter().count();
    let (mut ids, mut mask) = (Vec::with_capacity(rows * length), Vec::with_capacity(rows * length));
    for text in texts(&of.data) {
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        let row = start.into_iter().chain(tokens(step, &text, most)).chain(end);
        let before = ids.len();
        ids.extend(row.map(|token| token as i64));
        mask.resize(ids.len(), 1);
        ids.resize(before + length, padding as i64);
        mask.resize(before + length, 0);
    }
    let shape = || vec![rows, length];
    let mut made = vec![of_int64s(&step.to, shape(), &ids)];
    made.extend(step.mask.as_ref().map(|name| of_int64s(name, shape(), &mask)));
    made.extend(step.types.as_ref().map(|name| of_int64s(name, shape(), &vec![0; rows * length])));
    Ok(made)
}
