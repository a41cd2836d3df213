//! Which keys does a record of a file have, and which values may they hold?
//!
//! [`record!`] declares a record once: it makes the Rust struct with its serde attributes, and the table of its keys. The
//! table drives the errors for unknown keys and wrong values (`check`) and the JSON Schemas (`json_schema`).
//!
//! ```text
//! record! {
//!     /// A hardware type.
//!     #[derive(Deserialize)]
//!     pub struct HardwareSpec {
//!         /// Unique name.
//!         pub name: String => required,
//!         /// Memory of one device; null is not limited.
//!         pub memory_mib: Option<f64> => optional.or_null(),
//!     }
//! }
//! ```

use std::collections::BTreeMap;

/// The kinds of files. A record may have other keys in another kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A problem file with pipelines.
    Problem,
    /// A scaling problem.
    ScalingProblem,
    /// A list of hardware types.
    HardwareList,
    /// A pipeline as it is registered with the service: measured values may be absent.
    RegisteredPipeline,
    /// The measurements of one pipeline.
    ProfileSet,
    /// A plan file.
    Plan,
    /// The plan file of a scaling problem.
    ScalingPlan,
    /// Another result of a command.
    OtherResult,
}

/// The form of one value.
#[derive(Clone, Copy)]
pub(crate) enum ValueShape {
    /// Anything at all.
    Any,
    /// Text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// A whole number from 0 to `u32::MAX`.
    Count,
    /// A whole number from 0 to `u64::MAX`.
    Large,
    /// A whole number, negative ones included.
    Integer,
    /// One of some words.
    Word {
        /// The words that errors name.
        words: &'static [&'static str],
        /// Further words with the same meaning as one of `words`.
        aliases: &'static [&'static str],
    },
    /// A list of such values.
    List(&'static ValueShape),
    /// An object whose keys are names chosen by the user.
    Table(&'static ValueShape),
    /// An object whose keys are whole numbers and whose values are numbers.
    Distribution,
    /// An object with the keys of a record.
    Record(&'static Record),
}

/// A Rust type of a value in a file.
pub(crate) trait FileValue {
    /// The form of the value.
    const SHAPE: ValueShape;
}

/// Implements [`FileValue`] for simple types.
macro_rules! shapes {
    ($($type:ty: $shape:expr,)*) => {
        $(impl FileValue for $type { const SHAPE: ValueShape = $shape; })*
    };
}

shapes! {
    String: ValueShape::Text,
    bool: ValueShape::Flag,
    f64: ValueShape::Number,
    u32: ValueShape::Count,
    u64: ValueShape::Large,
    i64: ValueShape::Integer,
    BTreeMap<u32, f64>: ValueShape::Distribution,
}

impl<T: FileValue> FileValue for Option<T> {
    const SHAPE: ValueShape = T::SHAPE;
}

impl<T: FileValue> FileValue for Vec<T> {
    const SHAPE: ValueShape = ValueShape::List(&T::SHAPE);
}

impl<T: FileValue> FileValue for BTreeMap<String, T> {
    const SHAPE: ValueShape = ValueShape::Table(&T::SHAPE);
}

/// The keys of an object in a file.
pub(crate) struct Record {
    /// The name of its Rust struct.
    pub(crate) name: &'static str,
    /// Its documentation.
    pub(crate) about: &'static str,
    /// Its keys.
    pub(crate) keys: &'static [RecordKey],
}

/// In which kinds of files a key is required or allowed.
#[derive(Clone, Copy)]
enum Presence {
    Required,
    Optional,
    RequiredIn(FileKind),
    OnlyIn(FileKind),
}

/// One key of a record.
pub(crate) struct RecordKey {
    /// The key.
    pub(crate) name: &'static str,
    /// Its documentation.
    pub(crate) about: &'static str,
    /// The form of its value.
    pub(crate) shape: ValueShape,
    presence: Presence,
    nullable: bool,
}

impl RecordKey {
    /// An optional key whose value has the type `T`.
    pub(crate) const fn of<T: FileValue>(name: &'static str, about: &'static str) -> Self {
        Self { name, about, shape: T::SHAPE, presence: Presence::Optional, nullable: false }
    }

    /// The key must be there.
    pub(crate) const fn required(self) -> Self {
        Self { presence: Presence::Required, ..self }
    }

    /// The key may be absent.
    pub(crate) const fn optional(self) -> Self {
        self
    }

    /// The key must be there in files of this kind, with a value that is not null. Elsewhere it may be absent.
    pub(crate) const fn required_in(self, kind: FileKind) -> Self {
        Self { presence: Presence::RequiredIn(kind), ..self }
    }

    /// The key may be there in files of this kind. Elsewhere it is unknown.
    pub(crate) const fn only_in(self, kind: FileKind) -> Self {
        Self { presence: Presence::OnlyIn(kind), ..self }
    }

    /// Its value may be null.
    pub(crate) const fn or_null(self) -> Self {
        Self { nullable: true, ..self }
    }

    /// Its value is one of these words.
    pub(crate) const fn words(self, words: &'static [&'static str]) -> Self {
        self.words_or(words, &[])
    }

    /// Its value is one of these words, or an alias.
    pub(crate) const fn words_or(self, words: &'static [&'static str], aliases: &'static [&'static str]) -> Self {
        Self { shape: ValueShape::Word { words, aliases }, ..self }
    }

    /// The key has another name than its Rust field.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Whether the key must be there.
    pub(crate) fn is_required(&self, kind: FileKind) -> bool {
        match self.presence {
            Presence::Required => true,
            Presence::RequiredIn(required) => required == kind,
            Presence::Optional | Presence::OnlyIn(_) => false,
        }
    }

    /// Whether the key is known.
    pub(crate) fn is_known(&self, kind: FileKind) -> bool {
        !matches!(self.presence, Presence::OnlyIn(only) if only != kind)
    }

    /// Whether its value may be null.
    pub(crate) fn is_nullable(&self, kind: FileKind) -> bool {
        self.nullable && !matches!(self.presence, Presence::RequiredIn(required) if required == kind)
    }
}

/// The text of a documentation attribute; empty for other attributes.
macro_rules! doc_text {
    ([doc = $text:literal]) => {
        $text
    };
    ($other:tt) => {
        ""
    };
}

/// Declares a record of a file: its struct, and the table of its keys.
macro_rules! record {
    (
        $(#$meta:tt)*
        $vis:vis struct $name:ident {
            $(
                $(#$attr:tt)*
                $field_vis:vis $field:ident : $type:ty
                    => $presence:ident $(($($argument:expr),*))? $(.$modifier:ident($($value:expr),*))*
            ),* $(,)?
        }
    ) => {
        $(#$meta)*
        $vis struct $name {
            $($(#$attr)* $field_vis $field: $type,)*
        }

        impl $name {
            pub(crate) const RECORD: crate::record::Record = crate::record::Record {
                name: stringify!($name),
                about: concat!($(crate::record::doc_text!($meta)),*),
                keys: &[$(
                    crate::record::RecordKey::of::<$type>(
                        stringify!($field),
                        concat!($(crate::record::doc_text!($attr)),*),
                    )
                    .$presence($($($argument),*)?)
                    $(.$modifier($($value),*))*
                ),*],
            };
        }

        impl crate::record::FileValue for $name {
            const SHAPE: crate::record::ValueShape = crate::record::ValueShape::Record(&$name::RECORD);
        }
    };
}

pub(crate) use {doc_text, record};
