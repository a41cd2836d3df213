//! What is the type of a tensor? A datatype of the Open Inference Protocol, and a shape with the rows first.

/// Inputs whose names begin so are the state of a query before a step.
pub const PAST: &str = "past.";
/// The output with this beginning and the rest of the input's name is the state after the step.
pub const PRESENT: &str = "present.";
/// The output that says for each row whether its query has ended.
pub const DONE: &str = "done";

/// Element types of the Open Inference Protocol that variants may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Datatype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
    /// The upper half of IEEE single precision.
    Bf16,
    /// Any bytes, texts most often: each element is its length (four bytes) and its bytes.
    Bytes,
}

impl Datatype {
    /// All of them. The position of each is its code between agents: new ones go to the end.
    pub const ALL: [Datatype; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
        Self::Bf16,
        Self::Bytes,
    ];

    /// Bytes of one element; of BYTES the fewest that an element has, which are those of its length.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 | Self::Bytes => 4,
            Self::Uint64 | Self::Int64 | Self::Fp64 => 8,
        }
    }

    /// Its name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bf16 => "BF16",
            Self::Bytes => "BYTES",
        }
    }

    /// The datatype with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// Name, datatype and shape (-1 is any size) of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSignature {
    /// As the variant names it.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// -1 first, then fixed sizes; -1 elsewhere is any size.
    pub shape: Vec<i64>,
}
