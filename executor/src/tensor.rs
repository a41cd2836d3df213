//! Tensors as the Open Inference Protocol knows them: name, datatype, shape, raw little-endian bytes.

use bytes::Bytes;

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
}

impl Datatype {
    /// All of them.
    pub const ALL: [Datatype; 12] = [
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
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Fp16 => 2,
            Self::Uint32 | Self::Int32 | Self::Fp32 => 4,
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
        }
    }

    /// The datatype with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// A tensor whose first dimension is rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// As the variant names it.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Row-major shape, rows first.
    pub shape: Vec<usize>,
    /// `shape.product() * datatype.size()` little-endian bytes, shared and never copied to be sliced.
    pub data: Bytes,
}

/// Name, datatype and shape (-1 is any size) of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// As the variant names it.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// -1 first, then fixed sizes; -1 elsewhere is any size.
    pub shape: Vec<i64>,
}

impl Tensor {
    /// Size of the first dimension; 0 for a scalar.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.shape.iter().skip(1).product::<usize>() * self.datatype.size()
    }

    /// Row `row` as a tensor of one row that shares the bytes.
    #[must_use]
    pub fn row(&self, row: usize) -> Tensor {
        self.slice(row, 1)
    }

    /// Rows `start .. start + count`, sharing the bytes. Panics if they are not there.
    #[must_use]
    pub fn slice(&self, start: usize, count: usize) -> Tensor {
        assert!(start + count <= self.rows(), "rows {start}+{count} of {}", self.rows());
        let bytes = self.row_bytes();
        let mut shape = self.shape.clone();
        shape[0] = count;
        let data = self.data.slice(start * bytes..(start + count) * bytes);
        Tensor { name: self.name.clone(), datatype: self.datatype, shape, data }
    }
}
