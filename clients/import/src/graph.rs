//! Which tensors does the graph of an ONNX file have?
//!
//! Read are the few fields of `onnx.proto` (ONNX's `ModelProto`) that say so. Weights and nodes are skipped, so a file of
//! gigabytes is read as fast as it comes from the disk, and no library of a runtime is necessary.

use apportion_wire::BadInput;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The tensors of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphHeader {
    /// What a caller sends. Inputs with a value in the file are not among them.
    pub inputs: Vec<GraphTensor>,
    /// What the graph answers.
    pub outputs: Vec<GraphTensor>,
    /// Where the weights are.
    pub weights: WeightPlace,
}

/// Where the weights of a graph are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightPlace {
    /// In the file itself.
    Inside,
    /// In other files beside it.
    Outside,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphTensor {
    /// Its name.
    pub name: String,
    /// The elements, in the words of the Open Inference Protocol. `None`: of another kind, or no tensor.
    pub datatype: Option<&'static str>,
    /// The sizes. `None`: the file does not say them.
    pub shape: Option<Vec<Dimension>>,
}

impl GraphTensor {
    /// The sizes of its axes, each if it is always the same; `None` if the file does not say its shape.
    #[must_use]
    pub fn sizes(&self) -> Option<Vec<Option<i64>>> {
        self.shape.as_ref().map(|shape| shape.iter().map(Dimension::fixed).collect())
    }

    /// The size of its first axis, that of the rows, if it is always the same.
    #[must_use]
    pub fn fixed_rows(&self) -> Option<i64> {
        self.shape.as_ref()?.first()?.fixed()
    }
}

/// The size of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Always the same.
    Fixed(i64),
    /// Any size, with a name. Equal names are equal sizes.
    Named(String),
    /// Any size.
    Any,
}

impl Dimension {
    /// Its size, if that is always the same.
    #[must_use]
    pub const fn fixed(&self) -> Option<i64> {
        if let Self::Fixed(size) = self { Some(*size) } else { None }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => size.fmt(f),
            Self::Named(name) => name.fmt(f),
            Self::Any => f.write_str("?"),
        }
    }
}

impl fmt::Display for GraphTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |shape: &Vec<Dimension>| shape.iter().map(Dimension::to_string).collect::<Vec<_>>().join(", ");
        let shape = self.shape.as_ref().map_or_else(|| "..".to_owned(), sizes);
        write!(f, "{} {} [{shape}]", self.name, self.datatype.unwrap_or("of an unknown kind"))
    }
}

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
}

/// The same message, for its other fields.
#[derive(Clone, PartialEq, Message)]
struct DescribedModelProto {
    #[prost(message, repeated, tag = "14")]
    metadata: Vec<MetadataProto>,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataProto {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(string, tag = "8")]
    name: String,
    #[prost(int32, tag = "14")]
    data_location: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    elements: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    dimensions: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    size: Option<i64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

/// Reads the tensors of an ONNX file.
///
/// # Errors
/// If the bytes are no ONNX model with inputs and outputs.
pub fn read_graph(file: &str, bytes: &[u8]) -> Result<GraphHeader, BadInput> {
    const EXPECTED: &str = "a model in ONNX format";
    let model = ModelProto::decode(bytes).map_err(|e| BadInput::one(file, "", e, EXPECTED))?;
    let graph = model.graph.ok_or_else(|| BadInput::one(file, "", "no graph", EXPECTED))?;
    // Old versions of the format list weights among the inputs too.
    let weights: BTreeSet<&str> = graph.initializer.iter().map(|w| w.name.as_str()).collect();
    let inputs: Vec<GraphTensor> =
        graph.input.iter().filter(|i| !weights.contains(i.name.as_str())).map(tensor_of).collect();
    let outputs: Vec<GraphTensor> = graph.output.iter().map(tensor_of).collect();
    if inputs.is_empty() || outputs.is_empty() {
        let found = format!("a graph with {} inputs and {} outputs", inputs.len(), outputs.len());
        return Err(BadInput::one(file, "", found, "at least one of each"));
    }
    let is_outside = graph.initializer.iter().any(|w| w.data_location == EXTERNAL);
    Ok(GraphHeader { inputs, outputs, weights: if is_outside { WeightPlace::Outside } else { WeightPlace::Inside } })
}

/// Reads the texts that an ONNX file has by keys beside its graph, for example the alphabet of a reader.
///
/// # Errors
/// If the bytes are no ONNX model.
pub fn read_metadata(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, String>, BadInput> {
    let model = DescribedModelProto::decode(bytes).map_err(|e| BadInput::one(file, "", e, "a model in ONNX format"))?;
    Ok(model.metadata.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

fn tensor_of(value: &ValueInfoProto) -> GraphTensor {
    let tensor = value.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
    let shape = tensor.and_then(|t| t.shape.as_ref());
    GraphTensor {
        name: value.name.clone(),
        datatype: tensor.and_then(|t| datatype_of(t.elements)),
        shape: shape.map(|shape| shape.dimensions.iter().map(dimension_of).collect()),
    }
}

fn dimension_of(dimension: &DimensionProto) -> Dimension {
    match (dimension.size, &dimension.name) {
        (Some(size), _) if size > 0 => Dimension::Fixed(size),
        // Some exporters write a question mark for a size that they do not know.
        (_, Some(name)) if !["", "?"].contains(&name.as_str()) => Dimension::Named(name.clone()),
        _ => Dimension::Any,
    }
}

/// The name of `TensorProto.DataType`.
fn datatype_of(elements: i32) -> Option<&'static str> {
    const KNOWN: [Option<&str>; 14] = [
        None,
        Some("FP32"),
        Some("UINT8"),
        Some("INT8"),
        Some("UINT16"),
        Some("INT16"),
        Some("INT32"),
        Some("INT64"),
        Some("BYTES"),
        Some("BOOL"),
        Some("FP16"),
        Some("FP64"),
        Some("UINT32"),
        Some("UINT64"),
    ];
    usize::try_from(elements).ok().and_then(|at| KNOWN.get(at).copied().flatten())
}
