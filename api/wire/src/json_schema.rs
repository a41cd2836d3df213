//! What is the JSON Schema of each kind of file?
//!
//! The schemas are made from the same records that the reader checks files with. They are committed under `docs/schemas/`.

use crate::plan::PlanFile;
use crate::profile_csv;
use crate::profile_set::ProfileSet;
use crate::record::{FileKind, Record, RecordKey, ValueShape};
use crate::scaling_spec::ScalingFileSpec;
use crate::spec::{PipelineSpec, ProblemSpec};
use crate::trace_csv;
use serde_json::{Map, Value, json};

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A schema with the name of its file under `docs/schemas/`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSchema {
    /// The name of the file.
    pub file: &'static str,
    /// The schema.
    pub schema: Value,
}

/// All schemas: JSON Schemas of JSON and YAML files, and Table Schemas of CSV files.
#[must_use]
pub fn all() -> Vec<NamedSchema> {
    let json = |file, title, kind, record| NamedSchema { file, schema: json_schema(title, kind, record) };
    let table = |file, schema| NamedSchema { file, schema };
    vec![
        json("problem.schema.json", "Problem file", FileKind::Problem, &ProblemSpec::RECORD),
        json("scaling-problem.schema.json", "Scaling problem file", FileKind::ScalingProblem, &ScalingFileSpec::RECORD),
        json("pipeline.schema.json", "Pipeline file", FileKind::RegisteredPipeline, &PipelineSpec::RECORD),
        json("profile.schema.json", "Measurements of a pipeline", FileKind::ProfileSet, &ProfileSet::RECORD),
        json("plan.schema.json", "Plan file", FileKind::Plan, &PlanFile::RECORD),
        json("scaling-plan.schema.json", "Plan file of a scaling problem", FileKind::ScalingPlan, &PlanFile::RECORD),
        table("profile-csv.table.json", profile_csv::table_schema()),
        table("trace-arrivals-csv.table.json", trace_csv::arrivals_schema()),
        table("trace-rates-csv.table.json", trace_csv::rates_schema()),
    ]
}

fn json_schema(title: &str, kind: FileKind, record: &'static Record) -> Value {
    let mut definitions = Definitions { kind, records: Map::new() };
    let Value::Object(root) = definitions.record_schema(record) else { unreachable!("a record is an object") };
    let mut schema = Map::new();
    schema.insert("$schema".into(), DIALECT.into());
    schema.insert("title".into(), title.into());
    schema.extend(root);
    if !definitions.records.is_empty() {
        schema.insert("$defs".into(), Value::Object(definitions.records));
    }
    Value::Object(schema)
}

/// The records of one schema, by name.
struct Definitions {
    kind: FileKind,
    records: Map<String, Value>,
}

impl Definitions {
    fn record_schema(&mut self, record: &'static Record) -> Value {
        let kind = self.kind;
        let mut properties = Map::new();
        for key in record.keys.iter().filter(|key| key.is_known(kind)) {
            let schema = self.key_schema(key);
            properties.insert(key.name.into(), schema);
        }
        let required: Vec<&str> = record.keys.iter().filter(|key| key.is_required(kind)).map(|key| key.name).collect();
        json!({
            "description": record.about.trim(),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    fn key_schema(&mut self, key: &'static RecordKey) -> Value {
        let mut schema = self.shape_schema(key.shape);
        if key.is_nullable(self.kind) {
            schema = json!({"anyOf": [schema, {"type": "null"}]});
        }
        schema["description"] = key.about.trim().into();
        schema
    }

    fn shape_schema(&mut self, shape: ValueShape) -> Value {
        match shape {
            ValueShape::Any => json!({}),
            ValueShape::Text => json!({"type": "string"}),
            ValueShape::Flag => json!({"type": "boolean"}),
            ValueShape::Number => json!({"type": "number"}),
            ValueShape::Count => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
            ValueShape::Large => json!({"type": "integer", "minimum": 0}),
            ValueShape::Integer => json!({"type": "integer"}),
            ValueShape::Word { words, aliases } => json!({"enum": words.iter().chain(aliases).collect::<Vec<_>>()}),
            ValueShape::List(item) => json!({"type": "array", "items": self.shape_schema(*item)}),
            ValueShape::Table(item) => json!({"type": "object", "additionalProperties": self.shape_schema(*item)}),
            ValueShape::Distribution => json!({
                "type": "object",
                "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"},
                "additionalProperties": {"type": "number"},
            }),
            ValueShape::Record(record) => {
                if !self.records.contains_key(record.name) {
                    let definition = self.record_schema(record);
                    self.records.insert(record.name.into(), definition);
                }
                json!({"$ref": format!("#/$defs/{}", record.name)})
            }
        }
    }
}
