//! Is a request of the Open Inference Protocol (version 2) valid for its pipeline, and what is its answer?
//!
//! HTTP and gRPC share this: parameters, and tensors that are checked against the inputs and outputs of the pipeline.

use super::BODY_BYTES_MAX;
use super::error::{ElementsError, InputError, OutputError, ParameterError, PiecesError};
use super::refusal::Refusal;
use crate::backend::Kind;
use apportion_node::chooser::Needs;
use apportion_node::layout::Pipeline;
use apportion_node::node::request::{Piece, Terms};
use apportion_node::node::split::PARENT;
use apportion_node::policies::{LEVEL_DEFAULT, LEVEL_OFFLINE};
use apportion_node::tensor::{Datatype, Tensor, TensorSpec, concatenate, elements, holds, no_rows, texts};
use bytes::Bytes;

/// Most rows of one request: each becomes a query of its own.
pub const ROWS_MAX: usize = 65_536;
/// Most inputs of one request, and most outputs that it may ask for.
pub const TENSORS_MAX: usize = 1_024;
/// Most bytes of a request's `id`, which is echoed.
pub const ID_BYTES_MAX: usize = 1_024;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Whole(i128),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(v) => v.fmt(f),
            Self::Whole(v) => v.fmt(f),
            Self::Real(v) => v.fmt(f),
            Self::Text(v) => write!(f, "{v:?}"),
        }
    }
}

impl Parameter {
    /// The error that the parameter with this name has this value.
    pub(super) fn refused(&self, name: &str, expected: &'static str) -> ParameterError {
        ParameterError::Value { name: name.to_owned(), found: self.to_string(), expected }
    }

    fn whole(&self, name: &str, expected: &'static str) -> Result<u64, ParameterError> {
        let number = if let Self::Whole(v) = self { u64::try_from(*v).ok() } else { None };
        number.ok_or_else(|| self.refused(name, expected))
    }

    /// A part of the whole, in millionths, rounded up.
    fn part_ppm(&self, name: &str) -> Result<u32, ParameterError> {
        let part = match self {
            Self::Real(v) => Some(*v),
            Self::Whole(v @ 0..=1) => Some(*v as f64),
            // A client of the protocol can send no other numbers than whole ones over gRPC.
            Self::Text(text) => text.parse().ok(),
            _ => None,
        };
        let part = part.filter(|p| (0.0..=1.0).contains(p));
        let part = part.ok_or_else(|| self.refused(name, "a part from 0 to 1"))?;
        Ok((part * 1e6 - 1e-6).ceil() as u32)
    }

    /// As true or false.
    ///
    /// # Errors
    /// [`ParameterError::Value`] if it is anything else.
    pub fn boolean(&self, name: &str) -> Result<bool, ParameterError> {
        match self {
            Self::Bool(v) => Ok(*v),
            other => Err(other.refused(name, "true or false")),
        }
    }
}

/// What a request's parameters say. Those that are not known mean nothing here, as the protocol has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `timeout`: the answer is worth nothing after so long, in nanoseconds (the protocol's unit is the microsecond).
    pub timeout_ns: Option<u64>,
    /// `priority`: 0 is the default, 1 the highest.
    pub priority: u64,
    /// `accuracy_min`, in millionths: variants at least so accurate serve it.
    pub accuracy_ppm_min: Option<u32>,
    /// `latency_max_us`, in nanoseconds: variants that are so fast serve it, and later it is late.
    pub latency_ns_max: Option<u64>,
    /// `offline`: it runs where nothing else waits, whatever its priority.
    pub offline: bool,
    /// `binary_data_output`: outputs that do not say otherwise are sent as bytes.
    pub binary: bool,
}

impl Settings {
    /// Takes a parameter.
    ///
    /// # Errors
    /// [`ParameterError::Value`].
    pub fn set(&mut self, name: &str, value: &Parameter) -> Result<(), ParameterError> {
        match name {
            "timeout" => {
                let micros = value.whole(name, "microseconds, a whole number; 0 is no timeout")?;
                self.timeout_ns = (micros > 0).then(|| micros.saturating_mul(1_000));
            }
            "priority" => self.priority = value.whole(name, "0 (the default), 1 (the highest) or more")?,
            "offline" => self.offline = value.boolean(name)?,
            "binary_data_output" => self.binary = value.boolean(name)?,
            "accuracy_min" => self.accuracy_ppm_min = Some(value.part_ppm(name)?),
            "latency_max_us" => {
                let expected = "microseconds, a whole number above 0";
                let micros = value.whole(name, expected)?;
                if micros == 0 {
                    return Err(value.refused(name, expected));
                }
                self.latency_ns_max = Some(micros.saturating_mul(1_000));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Settings {
    /// What they mean to the agent; `call_ns` is what the call itself gives the request.
    #[must_use]
    pub fn terms(&self, call_ns: Option<u64>) -> Terms {
        let has_needs = self.accuracy_ppm_min.is_some() || self.latency_ns_max.is_some();
        let needs = Needs {
            accuracy_ppm_min: self.accuracy_ppm_min.unwrap_or(0),
            latency_ns_max: self.latency_ns_max.unwrap_or(u64::MAX),
        };
        let level = match self.priority {
            _ if self.offline => LEVEL_OFFLINE,
            0 => LEVEL_DEFAULT,
            n => u32::try_from(n).unwrap_or(u32::MAX).min(LEVEL_OFFLINE - 1),
        };
        let timeout_ns = [self.timeout_ns, call_ns].into_iter().flatten().min();
        Terms { timeout_ns, level, needs: has_needs.then_some(needs), trace: None, sender: 0 }
    }
}

/// An output that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// `binary_data`: whether it is sent as bytes; none if it does not say.
    pub binary: Option<bool>,
}

impl Wanted {
    /// Takes a parameter of the output.
    ///
    /// # Errors
    /// [`ParameterError`] by cause.
    pub fn set(&mut self, name: &str, value: &Parameter) -> Result<(), ParameterError> {
        match name {
            "binary_data" => self.binary = Some(value.boolean(name)?),
            "classification" if *value != Parameter::Whole(0) => return Err(ParameterError::Unsupported(name.into())),
            _ if name.starts_with("shared_memory") => return Err(ParameterError::Unsupported(name.into())),
            _ => {}
        }
        Ok(())
    }
}

/// The elements of an input before they are checked.
pub trait Elements {
    /// Their little-endian bytes, of at most `max` elements.
    ///
    /// # Errors
    /// [`ElementsError`] by cause.
    fn bytes(self, datatype: Datatype, max: usize) -> Result<Bytes, ElementsError>;
}

/// One input before it is checked.
pub struct Given<E> {
    /// Its name.
    pub name: String,
    /// The protocol's name of its datatype.
    pub datatype: String,
    /// Row-major shape.
    pub shape: Vec<i64>,
    /// Its elements.
    pub elements: E,
}

/// The inputs as tensors in the order of `specs`, checked against them.
///
/// # Errors
/// [`InputError`] by cause.
pub fn inputs<E: Elements>(given: Vec<Given<E>>, specs: &[TensorSpec]) -> Result<Vec<Tensor>, InputError> {
    let mut slots: Vec<Option<Given<E>>> = specs.iter().map(|_| None).collect();
    for input in given {
        let Some(at) = specs.iter().position(|s| s.name == input.name) else {
            let known = specs.iter().map(|s| s.name.clone()).collect();
            return Err(InputError::Unknown { name: input.name, known });
        };
        if slots[at].is_some() {
            return Err(InputError::Twice(input.name));
        }
        slots[at] = Some(input);
    }
    let mut tensors: Vec<Tensor> = Vec::with_capacity(specs.len());
    for (spec, input) in specs.iter().zip(slots) {
        let input = input.ok_or_else(|| InputError::Missing(spec.clone()))?;
        let tensor = tensor(input, spec)?;
        let (found, expected) = (tensor.rows(), tensors.first().map_or(tensor.rows(), Tensor::rows));
        if found != expected {
            return Err(InputError::Rows { name: tensor.name, found, expected });
        }
        tensors.push(tensor);
    }
    match tensors.first().map_or(0, Tensor::rows) {
        0 => Err(InputError::NoRows),
        found if found > ROWS_MAX => Err(InputError::ManyRows { found, rows_max: ROWS_MAX }),
        _ => Ok(tensors),
    }
}

fn tensor<E: Elements>(input: Given<E>, spec: &TensorSpec) -> Result<Tensor, InputError> {
    let Given { name, datatype: found, shape: given, elements: data } = input;
    let datatype = spec.datatype.name();
    if found != datatype {
        return Err(InputError::Datatype { name, found, expected: spec.clone() });
    }
    let fits = |(given, expected): (&i64, &i64)| *given >= 0 && (*expected < 0 || given == expected);
    if given.len() != spec.shape.len() || !given.iter().zip(&spec.shape).all(fits) {
        return Err(InputError::Shape { name, found: given, expected: spec.clone() });
    }
    let sizes: Option<Vec<usize>> = given.iter().map(|d| usize::try_from(*d).ok()).collect();
    let counted = sizes.and_then(|shape| Some((elements(&shape, spec.datatype)?, shape)));
    let Some((count, shape)) = counted else { return Err(InputError::Overflow { name, shape: given }) };
    if count.saturating_mul(spec.datatype.size()) > BODY_BYTES_MAX {
        return Err(InputError::Bytes { name, shape: given, bytes_max: BODY_BYTES_MAX, datatype });
    }
    let refuse = |source: ElementsError| InputError::Data { name: name.clone(), source };
    let data = data.bytes(spec.datatype, count).map_err(refuse)?;
    holds(&data, &shape, spec.datatype).map_err(|e| refuse(e.into()))?;
    if spec.datatype == Datatype::Bool && data.iter().any(|b| *b > 1) {
        return Err(refuse(ElementsError::NotBool));
    }
    Ok(Tensor { name, datatype: spec.datatype, shape, data })
}

/// Checks that texts are UTF-8 where the variants run here. ONNX Runtime takes no others, and a malformed text would make
/// its whole batch fail. Another server may take any bytes.
///
/// # Errors
/// [`InputError::Data`] with the position of the first malformed text.
pub fn check_texts(inputs: &[Tensor], backend: Kind) -> Result<(), InputError> {
    if backend != Kind::Local {
        return Ok(());
    }
    for input in inputs.iter().filter(|t| t.datatype == Datatype::Bytes) {
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
        if let Some(at) = texts(&input.data).position(|text| !text.is_some_and(is_text)) {
            return Err(InputError::Data { name: input.name.clone(), source: ElementsError::NotText(at) });
        }
    }
    Ok(())
}

/// Checks the outputs that a request asks for against those that the pipeline makes.
///
/// # Errors
/// [`OutputError::Unknown`], [`OutputError::Twice`].
pub fn check_wanted(wanted: &[Wanted], specs: &[(String, TensorSpec)]) -> Result<(), OutputError> {
    let mut seen = std::collections::BTreeSet::new();
    for output in wanted {
        if specs.iter().all(|(name, _)| *name != output.name) {
            let known = specs.iter().map(|(name, _)| name.clone()).collect();
            return Err(OutputError::Unknown { name: output.name.clone(), known });
        }
        if !seen.insert(&output.name) {
            return Err(OutputError::Twice(output.name.clone()));
        }
    }
    Ok(())
}

/// The outputs that a request asks for, in its order, and whether each is sent as bytes; all of them if it asks for none.
///
/// # Errors
/// If one of them is not there.
pub fn select(outputs: Vec<Tensor>, wanted: &[Wanted], binary: bool) -> Result<Vec<(Tensor, bool)>, Refusal> {
    if wanted.is_empty() {
        return Ok(outputs.into_iter().map(|t| (t, binary)).collect());
    }
    let pick = |w: &Wanted| {
        let tensor = outputs.iter().find(|t| t.name == w.name).cloned();
        let tensor = tensor.ok_or_else(|| Refusal::failed(format!("output {} was not made", w.name)))?;
        Ok((tensor, w.binary.unwrap_or(binary)))
    };
    wanted.iter().map(pick).collect()
}

/// What the outputs of a pipeline are called, by sink and output: with several sinks, after their task.
#[must_use]
pub fn output_specs(pipeline: &Pipeline) -> Vec<(String, TensorSpec)> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.is_sink()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut specs = Vec::new();
    for sink in &sinks {
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            specs.push((name(&sink.name, &spec.name), spec.clone()));
        }
        let parent = TensorSpec { name: PARENT.into(), datatype: Datatype::Int64, shape: vec![-1] };
        specs.push((name(&sink.name, PARENT), parent));
    }
    specs
}

/// The outputs of an answer: for each sink, the rows in the requests' order and, as `parent`, which row they are of.
///
/// # Errors
/// [`PiecesError`] if the pieces of a sink do not fit together.
pub fn outputs(pieces: &[Piece], pipeline: &Pipeline) -> Result<Vec<Tensor>, PiecesError> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.is_sink()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut all = Vec::new();
    for sink in &sinks {
        let mine: Vec<&Piece> = pieces.iter().filter(|p| p.task == sink.name).collect();
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            let parts: Vec<&Tensor> = mine.iter().filter_map(|p| p.outputs.iter().find(|t| t.name == spec.name)).collect();
            let filled: Vec<&Tensor> = parts.into_iter().filter(|t| t.rows() > 0).collect();
            let rows = if filled.is_empty() { Some(no_rows(spec)) } else { concatenate(&filled) };
            let differ = || PiecesError::Shapes { task: sink.name.clone(), output: spec.name.clone() };
            let rows = rows.ok_or_else(differ)?;
            all.push(Tensor { name: name(&sink.name, &spec.name), ..rows });
        }
        let rows = |p: &&Piece| std::iter::repeat_n(i64::from(p.row), p.outputs.first().map_or(0, Tensor::rows));
        let parents: Vec<i64> = mine.iter().flat_map(rows).collect();
        let data: Vec<u8> = parents.iter().flat_map(|p| p.to_le_bytes()).collect();
        let (datatype, shape) = (Datatype::Int64, vec![parents.len()]);
        all.push(Tensor { name: name(&sink.name, PARENT), datatype, shape, data: data.into() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::describe;

    struct Raw(&'static [u8]);

    impl Elements for Raw {
        fn bytes(self, _: Datatype, _: usize) -> Result<Bytes, ElementsError> {
            Ok(Bytes::from_static(self.0))
        }
    }

    fn specs() -> Vec<TensorSpec> {
        let spec = |name: &str, datatype, shape: &[i64]| TensorSpec { name: name.into(), datatype, shape: shape.to_vec() };
        vec![spec("x", Datatype::Uint8, &[-1, 2]), spec("t", Datatype::Bytes, &[-1]), spec("b", Datatype::Bool, &[-1, -1])]
    }

    fn given(name: &str, datatype: &str, shape: &[i64], data: &'static [u8]) -> Given<Raw> {
        Given { name: name.into(), datatype: datatype.into(), shape: shape.to_vec(), elements: Raw(data) }
    }

    fn valid() -> [Given<Raw>; 3] {
        [
            given("b", "BOOL", &[1, 1], &[1]),
            given("t", "BYTES", &[1], &[1, 0, 0, 0, 65]),
            given("x", "UINT8", &[1, 2], &[1, 2]),
        ]
    }

    #[test]
    fn inputs_come_in_the_order_of_the_pipeline() {
        let tensors = inputs(valid().into(), &specs()).expect("valid");
        assert_eq!(tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["x", "t", "b"]);
    }

    #[test]
    fn each_wrong_input_is_named() {
        let cases = [
            (given("y", "UINT8", &[1, 2], &[1, 2]), "expected x, t, b"),
            (given("x", "INT8", &[1, 2], &[1, 2]), "x is INT8: expected UINT8"),
            (given("x", "UINT8", &[1, -2], &[1, 2]), "expected UINT8 of shape [-1, 2]"),
            (given("x", "UINT8", &[-1, 2], &[1, 2]), "has shape [-1, 2]"),
            (given("x", "UINT8", &[1, 2], &[1]), "1 bytes: expected 2"),
            (given("x", "UINT8", &[2, 2], &[1, 2, 3, 4]), "has 1 rows: expected 2"),
            (given("b", "BOOL", &[i64::MAX, i64::MAX], &[1]), "too large"),
            (given("t", "BYTES", &[1], &[9, 0, 0, 0, 65]), "within an element"),
            (given("t", "BYTES", &[1], &[0, 0, 0, 0, 0, 0, 0, 0]), "2 elements: expected 1"),
            (given("b", "BOOL", &[1, 1], &[2]), "0 or 1"),
        ];
        for (wrong, expected) in cases {
            let mut all: Vec<_> = valid().into_iter().filter(|g| g.name != wrong.name).collect();
            all.push(wrong);
            let error = describe(&inputs(all, &specs()).expect_err(expected));
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let missing = inputs(valid().into_iter().skip(1).collect(), &specs()).expect_err("no b").to_string();
        assert!(missing.contains("b is missing: expected BOOL"), "{missing}");
        let twice = inputs(valid().into_iter().chain(valid()).collect(), &specs()).expect_err("twice");
        assert!(twice.to_string().contains("twice"), "{twice}");
    }

    #[test]
    fn rows_are_bounded_though_they_have_no_bytes() {
        let spec = TensorSpec { name: "e".into(), datatype: Datatype::Uint8, shape: vec![-1, 0] };
        let rows = |n: usize| inputs(vec![given("e", "UINT8", &[n as i64, 0], &[])], std::slice::from_ref(&spec));
        assert_eq!(rows(ROWS_MAX).expect("as many as may be")[0].rows(), ROWS_MAX);
        assert!(rows(ROWS_MAX + 1).expect_err("one more").to_string().contains("at most 65536"));
        assert!(rows(0).expect_err("none").to_string().contains("no rows"));
    }

    #[test]
    fn local_backends_refuse_bytes_that_are_not_utf8() {
        let texts = |elements: &[&[u8]]| {
            let data = elements.iter().flat_map(|e| [&(e.len() as u32).to_le_bytes(), *e].concat()).collect();
            vec![Tensor { name: "t".into(), datatype: Datatype::Bytes, shape: vec![elements.len()], data }]
        };
        check_texts(&texts(&["zwölf".as_bytes(), b""]), Kind::Local).expect("texts");
        for wrong in [&b"\xff"[..], b"a\0b", b"\xc3"] {
            let error = describe(&check_texts(&texts(&[b"a", wrong]), Kind::Local).expect_err("no text"));
            assert!(error.contains("input t: data: element 1") && error.contains("UTF-8"), "{error}");
            check_texts(&texts(&[wrong]), Kind::Remote).expect("any bytes");
        }
    }

    #[test]
    fn a_tensor_is_no_larger_than_a_body() {
        let spec = TensorSpec { name: "e".into(), datatype: Datatype::Fp64, shape: vec![-1, -1] };
        let columns = (BODY_BYTES_MAX / 8 + 1) as i64;
        let error = inputs(vec![given("e", "FP64", &[1, columns], &[])], &[spec]).expect_err("too large");
        assert!(error.to_string().contains("expected at most 67108864 bytes"), "{error}");
    }

    #[test]
    fn parameters_are_read_by_their_names() {
        let mut settings = Settings::default();
        let mut set = |name: &str, value: Parameter| settings.set(name, &value);
        assert_eq!(set("timeout", Parameter::Whole(1_500)), Ok(()));
        assert_eq!(set("priority", Parameter::Whole(1)), Ok(()));
        assert_eq!(set("mine", Parameter::Real(0.5)), Ok(()));
        for (name, wrong, expected) in [
            ("timeout", Parameter::Whole(-1), "parameter timeout is -1"),
            ("timeout", Parameter::Text("1s".into()), "microseconds"),
            ("priority", Parameter::Real(1.5), "priority is 1.5"),
            ("binary_data_output", Parameter::Whole(1), "true or false"),
        ] {
            let error = set(name, wrong).expect_err(expected).to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        assert_eq!(settings, Settings { timeout_ns: Some(1_500_000), priority: 1, ..Settings::default() });
    }

    #[test]
    fn needs_and_levels_follow_from_the_parameters() {
        let mut settings = Settings::default();
        assert_eq!(settings.terms(Some(7)), Terms { timeout_ns: Some(7), ..Terms::default() });
        let mut set = |name: &str, value: Parameter| settings.set(name, &value);
        for wrong in [Parameter::Real(1.5), Parameter::Whole(2), Parameter::Bool(true), Parameter::Text("high".into())] {
            let error = set("accuracy_min", wrong).expect_err("no part").to_string();
            assert!(error.contains("expected a part from 0 to 1"), "{error}");
        }
        let mut refused = |value: Parameter| set("latency_max_us", value).expect_err("no time").to_string();
        assert!(refused(Parameter::Whole(0)).contains("above 0"));
        assert!(refused(Parameter::Real(0.5)).contains("microseconds"));
        for value in [Parameter::Real(0.9), Parameter::Text("0.9".into())] {
            assert_eq!(set("accuracy_min", value), Ok(()));
        }
        assert_eq!(set("latency_max_us", Parameter::Whole(20)), Ok(()));
        assert_eq!(set("priority", Parameter::Whole(i128::from(u64::MAX))), Ok(()));
        let needs = Needs { accuracy_ppm_min: 900_000, latency_ns_max: 20_000 };
        let least = LEVEL_OFFLINE - 1;
        assert_eq!(settings.terms(None), Terms { level: least, needs: Some(needs), ..Terms::default() });
        assert_eq!(settings.set("offline", &Parameter::Bool(true)), Ok(()));
        assert_eq!(settings.terms(None).level, LEVEL_OFFLINE, "whatever its priority");
    }

    #[test]
    fn outputs_are_picked_in_the_order_asked_for() {
        let wanted = |name: &str, binary| Wanted { name: name.into(), binary };
        let specs: Vec<_> = specs().into_iter().map(|s| (s.name.clone(), s)).collect();
        assert!(check_wanted(&[wanted("t", None), wanted("x", None)], &specs).is_ok());
        let twice = check_wanted(&[wanted("t", None), wanted("t", None)], &specs).expect_err("twice");
        assert!(twice.to_string().contains("twice"), "{twice}");
        let unknown = check_wanted(&[wanted("z", None)], &specs).expect_err("none");
        assert!(unknown.to_string().contains("expected x, t, b"), "{unknown}");
        let all = inputs(valid().into(), &self::specs()).expect("valid");
        let picked = select(all, &[wanted("t", Some(false)), wanted("x", None)], true).expect("there");
        let picked: Vec<_> = picked.iter().map(|(t, binary)| (t.name.as_str(), *binary)).collect();
        assert_eq!(picked, [("t", false), ("x", true)]);
    }
}
