//! Which message does a panic carry?

use std::any::Any;

/// The message of a panic, or none if its payload is no text.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_with_text_have_a_message() {
        let message = |panic: Box<dyn Any + Send>| panic_message(&*panic);
        assert_eq!(message(Box::new("a literal")).as_deref(), Some("a literal"));
        assert_eq!(message(Box::new("a text".to_owned())).as_deref(), Some("a text"));
        assert_eq!(message(Box::new(7)), None);
    }
}
