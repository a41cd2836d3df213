//! How deep does a YAML text nest? The answer is found before a tree is made, and has a line and a column.

use granit_parser::{Event, Parser};

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextPosition {
    pub line: usize,
    pub column: usize,
}

/// Most lists and objects in each other that the scanner takes, above its look-ahead.
const SCANNED_DEPTH_MAX: usize = 1 << 16;

/// The first place where a text nests more than `depth_max` lists and objects. Malformed YAML is within bounds: its parser
/// reports the error.
pub(crate) fn too_deep(text: &str, depth_max: usize) -> Option<TextPosition> {
    let mut depth = 0_usize;
    // The scanner looks further ahead than the events that it has given. Its own limits must not refuse a text first.
    let options = granit_parser::options! {
        flow_nesting_limit: SCANNED_DEPTH_MAX,
        block_nesting_limit: SCANNED_DEPTH_MAX,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.ok()?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > depth_max {
            return Some(TextPosition { line: span.start.line(), column: span.start.col() + 1 });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_over_lists_objects_and_styles() {
        let text = "a:\n- b: [1, {c: 2}]\n- - - x\n";
        // object, list, object, list, object
        assert_eq!(too_deep(text, 5), None);
        assert_eq!(too_deep(text, 4), Some(TextPosition { line: 2, column: 10 }));
        assert_eq!(too_deep("a: '[[[[[[' # [[[[[[\nb: |\n  [[[[[[\nc: x [[[[[[", 1), None, "text does not nest");
        assert_eq!(
            too_deep("[ #]\n[ #]\n[ #]\n]]]", 2),
            Some(TextPosition { line: 3, column: 1 }),
            "nor do comments close"
        );
    }

    #[test]
    fn malformed_yaml_is_left_to_its_parser() {
        assert_eq!(too_deep("a: [1", 5), None);
        assert_eq!(too_deep("", 0), None);
    }
}
