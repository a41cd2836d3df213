//! How deep does a YAML text nest? The answer is found before it is parsed.
//!
//! The parser reads all of a text first, and its scanner visits every open level at each token. So a text that nests deep
//! costs the square of its length. Here the same scanner stops at the first level that is too deep.

#![expect(unsafe_code, reason = "the events of the parser exist only in its C interface")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use unsafe_libyaml::{
    YAML_MAPPING_END_EVENT, YAML_MAPPING_START_EVENT, YAML_SEQUENCE_END_EVENT, YAML_SEQUENCE_START_EVENT,
    YAML_STREAM_END_EVENT, yaml_event_delete, yaml_event_t, yaml_event_type_t, yaml_parser_delete, yaml_parser_initialize,
    yaml_parser_parse, yaml_parser_set_input_string, yaml_parser_t,
};

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub line: u64,
    pub column: u64,
}

/// The first place where a text nests more than `depth_max` lists and objects. Malformed YAML is within bounds: its parser
/// reports the error.
pub(crate) fn too_deep(text: &str, depth_max: usize) -> Option<Place> {
    let mut events = Events::of(text)?;
    let mut depth = 0_usize;
    loop {
        let (kind, place) = events.next()?;
        match kind {
            YAML_SEQUENCE_START_EVENT | YAML_MAPPING_START_EVENT => depth += 1,
            YAML_SEQUENCE_END_EVENT | YAML_MAPPING_END_EVENT => depth = depth.saturating_sub(1),
            YAML_STREAM_END_EVENT => return None,
            _ => {}
        }
        if depth > depth_max {
            return Some(place);
        }
    }
}

/// The events of a text. The parser points into itself and into the text, so it is boxed and does not outlive the text.
struct Events<'a> {
    parser: Box<MaybeUninit<yaml_parser_t>>,
    text: PhantomData<&'a str>,
}

impl<'a> Events<'a> {
    /// `None` if there is no memory for a parser.
    fn of(text: &'a str) -> Option<Self> {
        let mut parser = Box::new(MaybeUninit::uninit());
        // SAFETY: the parser is initialised before it is given its input, which outlives `Events`, and is deleted by `drop`
        // alone.
        unsafe {
            if yaml_parser_initialize(parser.as_mut_ptr()).fail {
                return None;
            }
            yaml_parser_set_input_string(parser.as_mut_ptr(), text.as_ptr(), text.len() as u64);
        }
        Some(Self { parser, text: PhantomData })
    }

    /// The next event and where it begins; `None` at an error.
    fn next(&mut self) -> Option<(yaml_event_type_t, Place)> {
        let mut event = MaybeUninit::<yaml_event_t>::uninit();
        // SAFETY: the parser is initialised. It fills the event if it succeeds, and the event is deleted once it has been
        // read.
        unsafe {
            if yaml_parser_parse(self.parser.as_mut_ptr(), event.as_mut_ptr()).fail {
                return None;
            }
            let event = event.as_mut_ptr();
            let (kind, mark) = ((*event).type_, (*event).start_mark);
            yaml_event_delete(event);
            Some((kind, Place { line: mark.line + 1, column: mark.column + 1 }))
        }
    }
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        // SAFETY: `of` initialised it, and nobody else deletes it.
        unsafe { yaml_parser_delete(self.parser.as_mut_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_over_lists_objects_and_styles() {
        let text = "a:\n- b: [1, {c: 2}]\n- - - x\n";
        // object, list, object, list, object
        assert_eq!(too_deep(text, 5), None);
        assert_eq!(too_deep(text, 4), Some(Place { line: 2, column: 10 }));
        assert_eq!(too_deep("a: '[[[[[[' # [[[[[[\nb: |\n  [[[[[[\nc: x [[[[[[", 1), None, "text does not nest");
        assert_eq!(too_deep("[ #]\n[ #]\n[ #]\n]]]", 2), Some(Place { line: 3, column: 1 }), "nor do comments close");
    }

    #[test]
    fn malformed_yaml_is_left_to_its_parser() {
        assert_eq!(too_deep("a: [1", 5), None);
        assert_eq!(too_deep("", 0), None);
    }
}
