//! The ways in, by clients that are not ours (`tritonclient`) and by plain HTTP and gRPC.

use apportion_executor::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use apportion_executor::gateway::proto::infer_parameter::ParameterChoice;
use apportion_executor::gateway::proto::model_infer_request::InferInputTensor;
use apportion_executor::gateway::proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelStatisticsRequest, ServerReadyRequest,
};
use apportion_executor::gateway::{BODY_BYTES_MAX, json::HEADER_LENGTH};
use apportion_needs::{Need, counted};
use serde_json::{Value, json};
use std::path::Path;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_tritonclient_is_served() {
    let Some(python) = apportion_needs::clients() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::ingress::start(folder.path()).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/triton_client.py");
    let mut command = tokio::process::Command::new(python);
    let output = command.arg(script).args([&agent.http, &agent.grpc]).output().await.expect("Python runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    let cases = counted(Need::Clients, out.lines().filter(|line| line.starts_with("ok ")).collect()).len();
    assert_eq!(out.lines().last(), Some(format!("all {cases}").as_str()), "{out}");
}

async fn post(url: String, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, reqwest::header::HeaderMap, Vec<u8>) {
    let mut request = reqwest::Client::new().post(url).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    (response.status().as_u16(), response.headers().clone(), response.bytes().await.expect("a body").to_vec())
}

fn row(parameters: &Value) -> Value {
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 7]});
    json!({"id": "i", "inputs": [input], "parameters": parameters})
}

#[tokio::test(flavor = "multi_thread")]
async fn http_answers_by_the_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::ingress::start(folder.path()).await;
    let url = |rest: &str| format!("http://{}/v2/models/{rest}", agent.http);

    let body = row(&json!({"binary_data_output": true})).to_string().into_bytes();
    let (status, headers, body) = post(url("toy/versions/1/infer"), &[], body).await;
    assert_eq!((status, headers["content-type"].as_bytes()), (200, b"application/octet-stream".as_slice()));
    let length: usize = headers[HEADER_LENGTH].to_str().expect("text").parse().expect("a number");
    let about: Value = serde_json::from_slice(&body[..length]).expect("JSON");
    assert_eq!((&about["id"], &about["model_version"]), (&json!("i"), &json!("1")));
    assert_eq!(about["outputs"][0]["parameters"]["binary_data_size"], 4);
    assert_eq!(body[length..], [7.0_f32.to_le_bytes().as_slice(), &0_i64.to_le_bytes()].concat());

    // A timeout shorter than the batch takes is missed, though the pipeline's SLO is not; one that is longer is kept.
    let (status, _, body) = post(url("slow/infer"), &[], row(&json!({"timeout": 20_000})).to_string().into()).await;
    let told: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((status, &told["reason"]), (504, &json!("its timeout has passed")), "{told}");
    let (status, ..) = post(url("slow/infer"), &[], row(&json!({"timeout": 60_000_000})).to_string().into()).await;
    assert_eq!(status, 200);

    let needs = row(&json!({"accuracy_min": 0.9, "binary_data_output": true})).to_string().into_bytes();
    let (status, headers, body) = post(url("pick/infer"), &[], needs).await;
    assert_eq!((status, headers["apportion-variants"].as_bytes()), (200, b"split:split,sum:sum".as_slice()));
    let length: usize = headers[HEADER_LENGTH].to_str().expect("text").parse().expect("a number");
    let about: Value = serde_json::from_slice(&body[..length]).expect("JSON");
    assert_eq!(about["parameters"]["variants"], "split:split,sum:sum", "{about}");

    let (status, _, body) = post(url("toy/infer"), &[], vec![b' '; BODY_BYTES_MAX + 1]).await;
    assert!(status == 413 && String::from_utf8_lossy(&body).contains("expected at most"), "{status}");
    let (status, _, body) = post(url("toy/infer"), &[("content-encoding", "br")], vec![1]).await;
    assert!(status == 415 && String::from_utf8_lossy(&body).contains("expected gzip"), "{status}");
    let (status, _, body) = post(url("toy/infer"), &[(HEADER_LENGTH, "9")], vec![b'{']).await;
    assert!(status == 400 && String::from_utf8_lossy(&body).contains(HEADER_LENGTH), "{status}");
    let (status, _, body) = post(format!("http://{}/v2/repository/index", agent.http), &[], b"{\"ready\": 1}".into()).await;
    assert!(status == 400 && String::from_utf8_lossy(&body).contains("for the index"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_usual_labels() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::ingress::start(folder.path()).await;
    assert_eq!(agent.infer(&[[2.0, 1.0]]).await.0, 200);
    assert_eq!(agent.post("nobody", &json!({})).await.0, 404);
    // It is refused before anybody looks for its pipeline.
    let stranger = format!("http://{}/v2/models/stranger/infer", agent.http);
    assert_eq!(post(stranger, &[], vec![b' '; BODY_BYTES_MAX + 1]).await.0, 413);
    let url = format!("http://{}/metrics", agent.http);
    let wanted = [
        "apportion_requests_total{model_name=\"toy\",outcome=\"ok\"} 1",
        "apportion_requests_refused_total{model_name=\"\",reason=\"unknown\"} 1",
        "apportion_requests_refused_total{model_name=\"\",reason=\"too_large\"} 1",
        "apportion_request_duration_seconds_bucket{le=\"+Inf\",model_name=\"toy\"} 1",
        "apportion_batch_queries_total{model_name=\"toy\",task_name=\"sum\",variant_name=\"sum\",accelerator_type=\"\"} 2",
    ];
    let begun = std::time::Instant::now();
    loop {
        let text = reqwest::get(&url).await.expect("an answer").text().await.expect("text");
        let missing: Vec<_> = wanted.iter().filter(|line| !text.lines().any(|l| l == **line)).collect();
        if missing.is_empty() {
            assert!(!text.contains("stranger"), "clients must not make labels:\n{text}");
            break;
        }
        assert!(begun.elapsed() < crate::support::PATIENCE, "{missing:?} not in:\n{text}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn typed(pipeline: &str, parameters: &[(&str, ParameterChoice)]) -> ModelInferRequest {
    let contents = InferTensorContents { fp32_contents: vec![2.0, 5.0], ..Default::default() };
    let (name, datatype, shape) = ("x".into(), "FP32".into(), vec![1, 2]);
    let input = InferInputTensor { name, datatype, shape, contents: Some(contents), ..Default::default() };
    let parameter = |(name, choice): &(&str, ParameterChoice)| {
        (name.to_string(), InferParameter { parameter_choice: Some(choice.clone()) })
    };
    ModelInferRequest {
        model_name: pipeline.into(),
        id: "i".into(),
        parameters: parameters.iter().map(parameter).collect(),
        inputs: vec![input],
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_answers_by_the_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::ingress::start(folder.path()).await;
    let mut client = GrpcInferenceServiceClient::connect(format!("http://{}", agent.grpc)).await.expect("connects");
    assert!(client.server_ready(ServerReadyRequest {}).await.expect("an answer").into_inner().ready);

    // Typed contents are answered with typed contents.
    let answer = client.model_infer(typed("toy", &[])).await.expect("an answer").into_inner();
    assert!(answer.raw_output_contents.is_empty());
    let sums = answer.outputs.iter().find(|o| o.name == "s").and_then(|o| o.contents.clone()).expect("typed");
    assert_eq!((sums.fp32_contents, answer.id.as_str()), (vec![5.0, 6.0], "i"));

    let wrong = client.model_infer(typed("nobody", &[])).await.expect_err("no such pipeline");
    assert_eq!(wrong.code(), Code::NotFound, "{wrong}");
    let text = [("timeout", ParameterChoice::StringParam("soon".into()))];
    let wrong = client.model_infer(typed("toy", &text)).await.expect_err("no number");
    assert!(wrong.code() == Code::InvalidArgument && wrong.message().contains("microseconds"), "{wrong}");
    let soon = [("timeout", ParameterChoice::Int64Param(20_000))];
    let late = client.model_infer(typed("slow", &soon)).await.expect_err("too late");
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");

    let needs = [("latency_max_us", ParameterChoice::Int64Param(20_000))];
    let served = client.model_infer(typed("pick", &needs)).await.expect("an answer");
    assert_eq!(served.metadata().get("apportion-variants").map(|v| v.as_bytes()), Some(b"split:split,sum:sum".as_slice()));
    let needs = [("accuracy_min", ParameterChoice::DoubleParam(0.99))];
    let unmet = client.model_infer(typed("pick", &needs)).await.expect_err("nothing is so accurate");
    assert!(unmet.code() == Code::FailedPrecondition && unmet.message().contains("nearest"), "{unmet}");

    let mut large = typed("toy", &[]);
    large.raw_input_contents = vec![vec![0; BODY_BYTES_MAX + 2 * 1024 * 1024].into()];
    let refused = client.model_infer(large).await.expect_err("too large");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");

    let mut call = tonic::Request::new(typed("slow", &[]));
    call.set_timeout(std::time::Duration::from_millis(20));
    assert!(client.model_infer(call).await.is_err(), "the call's own timeout");

    // A request of a stream that is refused is answered, and the stream goes on.
    let all = [typed("toy", &[]), typed("nobody", &[]), typed("slow", &soon), typed("toy", &[])];
    let mut stream = client.model_stream_infer(tokio_stream::iter(all)).await.expect("a stream").into_inner();
    for expected in ["", "no pipeline nobody", "deadline", ""] {
        let answer = stream.message().await.expect("no error").expect("an answer");
        let (error, response) = (answer.error_message, answer.infer_response.expect("a response"));
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{expected}: {error}");
        assert_eq!((response.id.as_str(), response.outputs.is_empty()), ("i", !expected.is_empty()));
    }
    assert!(stream.message().await.expect("no error").is_none());

    let request = ModelStatisticsRequest { name: "toy".into(), ..Default::default() };
    let stats = client.model_statistics(request).await.expect("an answer").into_inner().model_stats;
    let success = stats[0].inference_stats.and_then(|s| s.success).expect("there");
    assert_eq!((stats[0].inference_count, success.count), (3, 3));
}
