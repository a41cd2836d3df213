//! How is the text format of protocol buffers read without a schema?
//!
//! The grammar is that of "Text Format Language Specification" (protobuf.dev). Extensions and `Any` are refused: a
//! `config.pbtxt` has none.

use apportion_wire::BadInput;

/// Most messages inside each other.
const DEPTH_MAX: usize = 32;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextValue {
    /// A quoted text, with its escapes resolved.
    Text(String),
    /// A number, a name of an enumeration, `true` or `false`.
    Word(String),
    Message(TextMessage),
}

/// The fields of a message, in their order. A list is a field that stands several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextMessage {
    /// The line of the field, its name and its value.
    pub fields: Vec<(usize, String, TextValue)>,
}

impl TextMessage {
    /// The values of a field.
    pub fn all<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m TextValue> {
        self.fields.iter().filter(move |(_, field, _)| field == name).map(|(_, _, value)| value)
    }

    /// The messages of a field.
    pub fn messages<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m TextMessage> {
        self.all(name).filter_map(|value| if let TextValue::Message(message) = value { Some(message) } else { None })
    }

    /// The text or word of a field that stands once.
    pub fn text<'m>(&'m self, name: &'m str) -> Option<&'m str> {
        self.all(name).find_map(|value| match value {
            TextValue::Text(text) | TextValue::Word(text) => Some(text.as_str()),
            TextValue::Message(_) => None,
        })
    }
}

/// Reads a message.
///
/// # Errors
/// Syntax, with line and column.
pub(super) fn read_text_proto(file: &str, text: &str) -> Result<TextMessage, BadInput> {
    let mut reader = Reader { file, text, at: 0, depth: 0 };
    let message = reader.fields(None)?;
    Ok(message)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn line(&self) -> usize {
        self.text[..self.at].matches('\n').count() + 1
    }

    fn refused(&self, expected: &str) -> BadInput {
        let column = self.text[..self.at].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let found: String = self.rest().chars().take_while(|c| *c != '\n').take(20).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
        BadInput::one(self.file, format!("line {} column {column}", self.line()), found, expected)
    }

    /// The next character behind blanks and comments.
    fn next(&mut self) -> Option<char> {
        loop {
            let blanks: usize = self.rest().chars().take_while(|c| c.is_whitespace()).map(char::len_utf8).sum();
            self.at += blanks;
            match self.rest().chars().next() {
                Some('#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                other => return other,
            }
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_next = self.next() == Some(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    /// Fields until `end`, or until the end of the text.
    fn fields(&mut self, end: Option<char>) -> Result<TextMessage, BadInput> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.refused("fewer messages inside each other"));
        }
        let mut message = TextMessage::default();
        loop {
            match (self.next(), end) {
                (None, None) => break,
                (None, Some(end)) => return Err(self.refused(&format!("{end:?}"))),
                (Some(found), Some(end)) if found == end => {
                    self.at += 1;
                    break;
                }
                _ => self.field(&mut message)?,
            }
        }
        self.depth -= 1;
        Ok(message)
    }

    fn field(&mut self, message: &mut TextMessage) -> Result<(), BadInput> {
        let (line, name) = (self.line(), self.word().ok_or_else(|| self.refused("the name of a field"))?);
        let has_colon = self.take(':');
        if self.take('[') {
            while !self.take(']') {
                let value = self.value()?;
                message.fields.push((line, name.clone(), value));
                if !self.take(',') && self.next() != Some(']') {
                    return Err(self.refused("',' or ']'"));
                }
            }
        } else {
            let is_message = matches!(self.next(), Some('{' | '<'));
            if !has_colon && !is_message {
                return Err(self.refused("':' or '{'"));
            }
            let value = self.value()?;
            message.fields.push((line, name, value));
        }
        let _separator = self.take(',') || self.take(';');
        Ok(())
    }

    fn value(&mut self) -> Result<TextValue, BadInput> {
        match self.next() {
            Some('{') => {
                self.at += 1;
                self.fields(Some('}')).map(TextValue::Message)
            }
            Some('<') => {
                self.at += 1;
                self.fields(Some('>')).map(TextValue::Message)
            }
            Some('"' | '\'') => {
                let mut text = String::new();
                while let Some(quote @ ('"' | '\'')) = self.next() {
                    text += &self.quoted(quote)?;
                }
                Ok(TextValue::Text(text))
            }
            _ => self.word().map(TextValue::Word).ok_or_else(|| self.refused("a value")),
        }
    }

    fn word(&mut self) -> Option<String> {
        self.next();
        let is_part = |c: char| c.is_ascii_alphanumeric() || ['_', '.', '-', '+'].contains(&c);
        let word: String = self.rest().chars().take_while(|c| is_part(*c)).collect();
        self.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    fn quoted(&mut self, quote: char) -> Result<String, BadInput> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other @ ('\\' | '"' | '\''))) => text.push(other),
                    _ => {
                        self.at = start + at;
                        return Err(self.refused("one of the escapes \\n, \\t, \\\\, \\\" and \\'"));
                    }
                },
                '\n' => break,
                c if c == quote => {
                    self.at = start + at + 1;
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(self.refused("a text that ends on its line"))
    }
}
