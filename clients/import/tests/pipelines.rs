//! Do descriptions of pipelines of other systems become pipeline files, and are malformed ones refused at their place?
//!
//! The keys of the fixtures are those of each system's documentation. The names are invented.

use apportion_import::{
    ImportedPipeline, RepositoryModel, pipeline_of_kserve_graph, pipeline_of_seldon, pipeline_of_triton_repository,
};
use apportion_wire::{BadInput, PipelineSpec, read_pipeline_spec};

/// "Model chaining" of KServe: a detector, then by its answer one of two readers.
const GRAPH: &str = "
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceGraph
metadata: {name: plates}
spec:
  nodes:
    root:
      routerType: Sequence
      steps:
        - serviceName: detector
          name: find
        - nodeName: readers
          data: $response
    readers:
      routerType: Switch
      steps:
        - {serviceName: reader-eu, condition: \"predictions.#(country==eu)\"}
        - {serviceName: reader-us}
";

/// A join as in Seldon's \"Pipeline examples\": two steps feed a third.
const JOIN: &str = "
apiVersion: mlops.seldon.io/v1alpha1
kind: Pipeline
metadata: {name: join}
spec:
  steps:
    - name: encode
    - name: look
      inputs: [encode]
    - name: listen
      inputs: [encode.outputs.SOUND]
    - name: judge
      inputs: [look.outputs.LOOK, listen.outputs.HEARD]
      tensorMap: {look.outputs.LOOK: IMAGE}
  output:
    steps: [judge]
";

const ENSEMBLE: &str = r#"
# an ensemble of two models
name: "plates"
platform: "ensemble"
max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "TEXT", data_type: TYPE_STRING, dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "find" model_version: -1
      input_map { key: "image" value: "IMAGE" }
      output_map: { key: "crops", value: 'crops' }
    },
    {
      model_name: "read"
      input_map { key: "image" value: "crops" }
      output_map { key: "text" value: "TEXT" }
    }
  ]
}
"#;

fn spec(draft: &ImportedPipeline) -> PipelineSpec {
    read_pipeline_spec("p.yaml", &draft.yaml).unwrap_or_else(|e| panic!("{e}\n{}", draft.yaml))
}

/// Parent, child and ratio of each edge.
fn edges(spec: &PipelineSpec) -> Vec<(&str, &str, Option<f64>)> {
    spec.edges.iter().map(|e| (e.from.as_str(), e.to.as_str(), e.ratio)).collect()
}

fn variants(spec: &PipelineSpec) -> Vec<Vec<&str>> {
    spec.tasks.iter().map(|t| t.variants.iter().map(|v| v.name.as_str()).collect()).collect()
}

fn refused(result: Result<ImportedPipeline, BadInput>) -> String {
    result.map(|draft| draft.yaml).expect_err("it is refused").to_string()
}

/// The models of a repository, each with its configuration.
fn repository(configs: &[(&str, &str)]) -> Vec<RepositoryModel> {
    let model = |(name, config): &(&str, &str)| RepositoryModel {
        folder: (*name).to_owned(),
        config: (!config.is_empty()).then(|| (format!("r/{name}/config.pbtxt"), (*config).to_owned())),
        onnx: config.is_empty().then(|| format!("r/{name}/1/model.onnx")),
        python: None,
    };
    configs.iter().map(model).collect()
}

#[test]
fn a_switch_is_a_task_that_chooses() {
    let draft = pipeline_of_kserve_graph("g.yaml", GRAPH).expect("a graph");
    let spec = spec(&draft);
    assert_eq!(spec.name, "plates");
    assert_eq!(variants(&spec), [vec!["detector"], vec!["reader-eu"], vec!["reader-us"]]);
    assert_eq!(edges(&spec), [("find", "reader-eu", Some(0.5)), ("find", "reader-us", Some(0.5))]);
    assert_eq!(spec.tasks[0].route.as_deref(), Some("one_of"));
    assert!(
        draft.yaml.contains("# decide: the share of the queries for which predictions.#(country==eu)"),
        "{}",
        draft.yaml
    );
}

#[test]
fn a_splitter_between_services_is_a_task_with_variants() {
    let text =
        GRAPH.replace("Switch", "Splitter").replace("{serviceName: reader-us}", "{serviceName: reader-us, weight: 10}");
    let spec = spec(&pipeline_of_kserve_graph("g.yaml", &text).expect("a graph"));
    assert_eq!(variants(&spec), [vec!["detector"], vec!["reader-eu", "reader-us"]]);
    assert_eq!(edges(&spec), [("find", "readers", None)]);
}

#[test]
fn an_ensemble_node_joins_in_the_next_step() {
    let text = GRAPH.replace("routerType: Switch", "routerType: Ensemble").replace(
        "          data: $response\n",
        "          data: $response\n        - {serviceName: judge, data: $response}\n",
    );
    let draft = pipeline_of_kserve_graph("g.yaml", &text).expect("a graph");
    let spec = spec(&draft);
    let wanted = [("find", "reader-eu"), ("find", "reader-us"), ("reader-eu", "judge"), ("reader-us", "judge")];
    assert_eq!(edges(&spec).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), wanted);
    assert_eq!(spec.edges.iter().map(|e| e.primary).collect::<Vec<_>>(), [None, None, Some(true), Some(false)]);
    assert!(draft.remarks.iter().any(|r| r.starts_with("judge waits for reader-eu, reader-us")), "{:?}", draft.remarks);
}

#[test]
fn graphs_that_are_no_pipelines_are_refused_at_their_place() {
    let cases = [
        (GRAPH.replace("nodeName: readers", "nodeName: writers"), "steps/1/nodeName: \"writers\""),
        (GRAPH.replace("kind: InferenceGraph", "kind: Service"), "g.yaml: /kind: \"Service\": expected \"InferenceGraph\""),
        (GRAPH.replace("routerType: Switch", "routerType: Random"), "g.yaml: /spec/nodes/readers/routerType: \"Random\""),
        (GRAPH.replace("serviceName: detector", "nodeName: root"), "the node \"root\" inside itself"),
        (GRAPH.replace("root:", "start:"), "g.yaml: /spec/nodes: no key \"root\""),
        (GRAPH.replace("routerType: Sequence", "routerType: Ensemble"), "a router that chooses behind 0 steps"),
        (GRAPH.replace("serviceName: detector", "data: x"), "steps/0: 0 targets"),
    ];
    for (text, wanted) in cases {
        let error = refused(pipeline_of_kserve_graph("g.yaml", &text));
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_join_of_seldon_is_a_join() {
    let draft = pipeline_of_seldon("p.json", &JOIN.replace("inputs: [encode]", "inputs: [encode.outputs]"));
    assert!(draft.is_err(), "YAML in a file that is called JSON");
    let draft = pipeline_of_seldon("p.yaml", JOIN).expect("a pipeline");
    let spec = spec(&draft);
    let wanted = [("encode", "look"), ("encode", "listen"), ("look", "judge"), ("listen", "judge")];
    assert_eq!(edges(&spec).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), wanted);
    let maps: Vec<Vec<(&str, &str)>> =
        spec.edges.iter().map(|e| e.map.iter().map(|(i, o)| (i.as_str(), o.as_str())).collect()).collect();
    assert_eq!(maps, [vec![], vec![("SOUND", "SOUND")], vec![("IMAGE", "LOOK")], vec![("HEARD", "HEARD")]]);
}

#[test]
fn pipelines_of_seldon_with_faults_are_refused() {
    let cases = [
        (JOIN.replace("inputs: [encode]", "inputs: [decode]"), "/spec/steps/1/inputs/0: \"decode\": expected a step"),
        (JOIN.replace("name: look", "name: encode"), "p.yaml: /spec/steps/1: a second step \"encode\""),
        (JOIN.replace("      inputs: [encode]\n", ""), "2 steps that take the request (encode, look)"),
        (JOIN.replace("- name: encode\n", "- name: encode\n      inputs: [judge]\n"), "a cycle through or before encode"),
        (JOIN.replace("[encode.outputs.SOUND]", "[encode.sound]"), "expected STEP, STEP.outputs.TENSOR or STEP.inputs"),
    ];
    for (text, wanted) in cases {
        let error = refused(pipeline_of_seldon("p.yaml", &text));
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn an_ensemble_of_triton_is_a_pipeline_of_its_models() {
    let models = repository(&[("find", ""), ("plates", ENSEMBLE), ("read", "name: \"read\" backend: \"python\"")]);
    let draft = pipeline_of_triton_repository("r", &models, None).expect("a repository");
    let spec = spec(&draft);
    assert_eq!((spec.name.as_str(), edges(&spec)), ("plates", vec![("find", "read", None)]));
    assert_eq!(spec.edges[0].map.iter().next(), Some((&"image".to_owned(), &"crops".to_owned())));
    assert_eq!(spec.tasks[0].variants[0].model.as_deref(), Some("r/find/1/model.onnx"));
    assert_eq!(draft.remarks, ["read: no ONNX file in its folder; profile it through its server"]);
    let one = pipeline_of_triton_repository("r", &models[..1], None).expect("a model");
    assert_eq!(variants(&self::spec(&one)), [vec!["find"]]);
}

#[test]
fn a_program_of_triton_has_the_tensors_of_its_configuration() {
    let config = "max_batch_size: 8 input { name: \"x\" data_type: TYPE_FP32 dims: [ 64, -1 ] } \
                  output { name: \"text\" data_type: TYPE_STRING dims: [ 1 ] }";
    let read = |config: &str| {
        let python = Some("r/small/1/model.py".to_owned());
        let models =
            repository(&[("small", config)]).into_iter().map(|model| RepositoryModel { python: python.clone(), ..model });
        spec(&pipeline_of_triton_repository("r", &models.collect::<Vec<_>>(), None).expect("a model"))
    };
    let made = read(config);
    let task = &made.tasks[0];
    assert_eq!(task.variants[0].model.as_deref(), Some("r/small/1/model.py"));
    let shapes = |list: &Option<Vec<apportion_wire::TensorSpec>>| -> Vec<(String, String, Vec<i64>)> {
        let tensor = |t: &apportion_wire::TensorSpec| (t.name.clone(), t.datatype.clone(), t.shape.clone());
        list.iter().flatten().map(tensor).collect()
    };
    assert_eq!(shapes(&task.inputs), [("x".to_owned(), "FP32".to_owned(), vec![-1, 64, -1])]);
    assert_eq!(shapes(&task.outputs), [("text".to_owned(), "BYTES".to_owned(), vec![-1, 1])]);
    let fixed = read(&config.replace("max_batch_size: 8", "max_batch_size: 0"));
    assert_eq!((shapes(&fixed.tasks[0].inputs), shapes(&fixed.tasks[0].outputs)), (vec![], vec![]), "no rows first");
}

#[test]
fn repositories_with_faults_are_refused_at_their_place() {
    let of = |ensemble: &str| repository(&[("find", ""), ("plates", ensemble), ("read", "name: \"read\"")]);
    let read = |ensemble: &str| refused(pipeline_of_triton_repository("r", &of(ensemble), None));
    let cases = [
        (
            ENSEMBLE.replace("model_name: \"read\"", "model_name: \"reed\""),
            "model_name \"reed\": expected one of find, plates",
        ),
        (
            ENSEMBLE.replace("value: \"crops\"", "value: \"cropped\""),
            "the tensor \"cropped\" of read: expected an input of",
        ),
        (ENSEMBLE.replace("value: 'crops'", "value: 'crops"), "r/plates/config.pbtxt: line 13 column 42"),
        (ENSEMBLE.replace("platform:", "platform"), "r/plates/config.pbtxt: line 4 column 10"),
        (ENSEMBLE.trim_end().trim_end_matches('}').to_owned(), "the end"),
        (ENSEMBLE.replace("dims: [ 1 ]", "dims: [ 1 2 ]"), "expected ',' or ']'"),
        ("a {".repeat(40), "fewer messages inside each other"),
    ];
    for (text, wanted) in cases {
        assert!(read(&text).contains(wanted), "{}", read(&text));
    }
    let none = refused(pipeline_of_triton_repository("r", &[], None));
    assert!(none.contains("r: no models"), "{none}");
    let two = repository(&[("find", ""), ("read", "")]);
    let several = refused(pipeline_of_triton_repository("r", &two, None));
    assert!(several.contains("2 models and 0 ensembles: expected --model with one of find, read"), "{several}");
    assert!(pipeline_of_triton_repository("r", &two, Some("read")).is_ok());
    assert!(refused(pipeline_of_triton_repository("r", &two, Some("reed"))).contains("no model \"reed\""));
}
