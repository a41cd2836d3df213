//! Do reports of other tools become the profiles that they state, and are malformed ones refused at their place?
//!
//! The headers are those that the tools write; each fixture names its source. The numbers are invented.

use apportion_import::{GatheredProfile, GivenNames, ProfileFormat, add_profile};
use apportion_wire::{
    AccuracyUnit, BadInput, ProfileCsvRow, ProfileSet, read_profile_csv, read_profile_set, write_profile_csv,
};

/// "Visualizing Latency vs. Throughput" in `docs/measurements_metrics.md` of Perf Analyzer.
const PERF: &str = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
                    Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n";
/// The same page of version 1.11 of `perf_client`, which had one column for all computation.
const PERF_OLD: &str = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute,\
                        Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n";
/// `metrics-model-inference.csv` in `docs/kubernetes_deploy.md` of Model Analyzer.
const ANALYZER: &str = "Model,Batch,Concurrency,Model Config Path,Instance Group,Preferred Batch Sizes,Satisfies Constraints,\
                        Throughput (infer/sec),p99 Latency (ms),RAM Usage (MB)\n";
/// `tests/data/model_db/profiles` of Nexus.
const NEXUS: &str = "caffe:vgg_s:1\nTITAN_X_(Pascal)\nForward latency\nbatch,latency(us),std(us),memory(B)\n";

fn names() -> GivenNames {
    GivenNames {
        task: "main".into(),
        variant: Some("resnet50".into()),
        hardware: Some("t4".into()),
        ..GivenNames::default()
    }
}

fn import(format: ProfileFormat, text: &str, names: &GivenNames) -> Result<(ProfileSet, Vec<String>), BadInput> {
    let mut gathered = GatheredProfile::default();
    add_profile(&mut gathered, format, "f", text, names)?;
    Ok(gathered.finish())
}

/// Variant, hardware, batch, latency and p99 of each row.
fn rows(set: &ProfileSet) -> Vec<(&str, &str, u32, f64, Option<f64>)> {
    set.rows.iter().map(|r| (r.variant.as_str(), r.hardware.as_str(), r.batch, r.latency_ms, r.p99_ms)).collect()
}

#[test]
fn perf_analyzer_gives_the_computation_of_its_lowest_load() {
    let text = format!(
        "{PERF}1,70,225,2100,60,200,11700,20,0,13900,18800,19700,21000\n2,88,230,1970,9150,190,11300,15,0,21800,28500,29700,\
         34700\n"
    );
    let (set, notes) = import(ProfileFormat::PerfAnalyzer, &text, &names()).expect("a report");
    assert_eq!(rows(&set), [("resnet50", "t4", 1, 11.92, None)]);
    assert_eq!(notes, [""; 0]);
    let sorted = format!("{PERF}4,84,1,1,1,1,9999,1,0,1,1,1,1\n1,70,1,1,1,200,11700,20,0,1,1,1,1\n");
    let (set, _) = import(ProfileFormat::PerfAnalyzer, &sorted, &GivenNames { batch: Some(8), ..names() }).expect("rows");
    assert_eq!(rows(&set), [("resnet50", "t4", 8, 11.92, None)], "rows stand by throughput");
    let (set, _) =
        import(ProfileFormat::PerfAnalyzer, &format!("{PERF_OLD}1,160,68,1290,38,4801,7,6212,6289,6328,7407\n"), &names())
            .expect("a report of an old version");
    assert_eq!(rows(&set), [("resnet50", "t4", 1, 4.801, None)]);
}

#[test]
fn perf_analyzer_without_a_server_gives_what_the_client_saw() {
    let text = "Request Rate,Inferences/Second,Client Send,Client Recv,p50 latency,p90 latency,p95 latency,p99 \
                latency\n2,2,60,9,6100,6200,6300,6400\n";
    let (set, notes) = import(ProfileFormat::PerfAnalyzer, text, &names()).expect("a report");
    assert_eq!(rows(&set), [("resnet50", "t4", 1, 6.1, Some(6.4))]);
    let told = [
        "f: no column \"Server Compute Infer\": latencies have the network and the client in them",
        "f: the lowest load is 2: latencies have waiting in them",
    ];
    assert_eq!(notes, told);
}

#[test]
fn several_batches_are_several_files_of_one_profile() {
    let mut gathered = GatheredProfile::default();
    let report = |us: u32| format!("{PERF}1,70,1,1,1,0,{us},0,0,1,1,1,1\n");
    for (file, batch, us) in [("b1.csv", 1, 9_000), ("b8.csv", 8, 30_000)] {
        let names = GivenNames { batch: Some(batch), ..names() };
        add_profile(&mut gathered, ProfileFormat::PerfAnalyzer, file, &report(us), &names).expect("a report");
    }
    let again = add_profile(&mut gathered, ProfileFormat::PerfAnalyzer, "again.csv", &report(1), &names());
    let again = again.map_err(|e| e.to_string()).err();
    let expected = "again.csv: line 2: a second latency of main/resnet50 on t4, batch 1: expected one row for each batch; the \
                    first is at b1.csv: line 2";
    assert_eq!(again.as_deref(), Some(expected));
    let (set, _) = gathered.finish();
    assert_eq!(rows(&set), [("resnet50", "t4", 1, 9.0, None), ("resnet50", "t4", 8, 30.0, None)]);
}

#[test]
fn model_analyzer_gives_one_replica_at_its_lowest_load() {
    let text = format!(
        "{ANALYZER}net,1,2,net_i0,1/GPU,[32],Yes,195.0,11.0,2897.0\nnet,1,1,net_i0,1/GPU,[32],Yes,164.0,8.1,2937.0\nnet,4,1,net_i1,\
         2/GPU,[32],Yes,300.0,20.5,2937.0\n"
    );
    let (set, notes) = import(ProfileFormat::ModelAnalyzer, &text, &names()).expect("a report");
    assert_eq!(rows(&set), [("net", "t4", 1, 8.1, None), ("net", "t4", 4, 20.5, None)]);
    let told = [
        "f: no column \"Avg Latency (ms)\": latencies are the p99, and plans are larger than they must be",
        "f: line 4: 2 copies of net shared the device",
    ];
    assert_eq!(notes, told);
    let header = "Model,Batch,Request Rate,Avg Latency (ms),p99 Latency (ms)";
    let parts = "Server Compute Input time (ms),Server Compute Infer time (ms),Server Compute Output time (ms)";
    let (set, _) = import(ProfileFormat::ModelAnalyzer, &format!("{header}\nnet,1,5,7.5,9\n"), &names()).expect("means");
    assert_eq!(rows(&set), [("net", "t4", 1, 7.5, Some(9.0))]);
    let text = format!("{header},{parts}\nnet,2,5,7.5,9,0.25,4,0.5\n");
    let (set, _) = import(ProfileFormat::ModelAnalyzer, &text, &names()).expect("computation");
    assert_eq!(rows(&set), [("net", "t4", 2, 4.75, None)]);
}

#[test]
fn nexus_gives_batches_memory_and_names() {
    let text = format!(
        "{NEXUS}1,3069.5,12.4,645922816\n2,3641.4,12.7,662700032\nPreprocess latency\nmean(us),std(us)\n3280,345\n"
    );
    let (set, _) =
        import(ProfileFormat::Nexus, &text, &GivenNames { task: "main".into(), ..GivenNames::default() }).expect("rows");
    let device = "TITAN_X_(Pascal)";
    assert_eq!(rows(&set), [("caffe-vgg_s-1", device, 1, 3.0695, None), ("caffe-vgg_s-1", device, 2, 3.6414, None)]);
    assert_eq!(set.variants[0].memory_mib, Some(632.0));
    let newer = "caffe:vgg_s:1\nT4\nGPU-1\nForward latency\nbatch,latency(us),std(us),memory(B),repeat\n1,5,1,1048576,10\n2,9,1,2097152,10\n\
                 Preprocess latency (mean,std,repeat)\n1,1,1\n";
    let (set, _) = import(ProfileFormat::Nexus, newer, &GivenNames { batch_max: Some(1), ..names() }).expect("rows");
    assert_eq!(rows(&set), [("caffe-vgg_s-1", "T4", 1, 0.005, None)]);
}

#[test]
fn a_table_has_its_columns_in_any_order_and_unit() {
    let text =
        "Model,GPU,Latency (us),Batch Size,P99 us,accuracy_percent,comment\nnet,t4,5000,1,6500,75,x\nnet,t4,9000,2,,75,y\n";
    let (set, notes) = import(ProfileFormat::Csv, text, &names()).expect("a table");
    assert_eq!(rows(&set), [("net", "t4", 1, 5.0, Some(6.5)), ("net", "t4", 2, 9.0, None)]);
    assert_eq!((set.variants[0].accuracy, set.rows[0].task.as_str()), (Some(0.75), "main"));
    assert_eq!(notes, ["f: ignored the column \"comment\""]);
    // Profiles of Loki, in seconds.
    let loki = ",model,accelerator,batch_size,avg_runtime,50th_pct_runtime\n0,yolov5n,gtx1080ti,4,0.031,0.03\n";
    let (set, _) = import(ProfileFormat::Csv, loki, &names()).expect("a table of Loki");
    assert_eq!(rows(&set), [("yolov5n", "gtx1080ti", 4, 30.0, None)]);
    let bare = "batch,latency_ms,share\n1,5,0.5\n";
    let (set, _) = import(ProfileFormat::Csv, bare, &names()).expect("a table without names");
    assert_eq!((rows(&set)[0], set.rows[0].share), (("resnet50", "t4", 1, 5.0, None), 0.5));
}

#[test]
fn every_import_is_read_again_from_csv_and_json() {
    let inputs = [
        (
            ProfileFormat::Csv,
            "task,variant,hardware,batch,latency_ms,p99_ms,accuracy\na,v,h,1,1.5,2,0.5\nb,w,h,2,3,,0.25\n".to_owned(),
        ),
        (ProfileFormat::PerfAnalyzer, format!("{PERF}1,70,1,1,1,0,9001,0,0,1,1,1,1\n")),
        (ProfileFormat::ModelAnalyzer, format!("{ANALYZER}net,1,1,c,1/GPU,[1],Yes,1,8.1,1\n")),
        (ProfileFormat::Nexus, format!("{NEXUS}1,3069.5,12.4,645922816\n7,9000,1,645922817\n")),
    ];
    for (format, text) in inputs {
        let (set, _) = import(format, &text, &names()).expect("a report");
        let json = serde_json::to_string(&set).expect("JSON");
        assert_eq!(read_profile_set("f.json", &json), Ok(set.clone()), "{format:?}");
        let csv: Vec<ProfileCsvRow> = set.rows.iter().map(|r| csv_row(r, &set)).collect();
        let mut written = Vec::new();
        write_profile_csv(&csv, &mut written).expect("memory does not fail");
        let written = String::from_utf8(written).expect("text");
        assert_eq!(read_profile_csv("f.csv", &written, AccuracyUnit::Fraction), Ok(csv), "{format:?}");
        let (again, notes) = import(ProfileFormat::Csv, &written, &names()).expect("our own file");
        assert_eq!((again.rows, notes), (set.rows, Vec::new()), "{format:?}");
    }
}

fn csv_row(r: &apportion_wire::MeasuredRow, set: &ProfileSet) -> ProfileCsvRow {
    ProfileCsvRow {
        pipeline: "p".into(),
        task: r.task.clone(),
        variant: r.variant.clone(),
        hardware: r.hardware.clone(),
        batch: r.batch,
        latency_ms: r.latency_ms,
        p99_ms: r.p99_ms,
        accuracy: set.variants.iter().find(|v| v.variant == r.variant).and_then(|v| v.accuracy),
    }
}

/// Asserts that each text is refused with a message that begins as expected.
fn assert_malformed(cases: &[(ProfileFormat, String, &str)]) {
    for (format, text, expected) in cases {
        let found = import(*format, text, &names()).expect_err(text).to_string();
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn a_malformed_table_is_refused_at_its_line_and_column() {
    use ProfileFormat::Csv;
    assert_malformed(&[
        (Csv, String::new(), "f: line 1: an empty file: expected a header"),
        (
            Csv,
            "variant,hardware,batch\n".into(),
            "f: line 1: the columns \"variant,hardware,batch\": expected a latency with its unit",
        ),
        (Csv, "batch,latency\n1,2\n".into(), "f: line 1: the columns \"batch,latency\": expected a latency with its unit"),
        (
            Csv,
            "latency_ms\n5\n".into(),
            "f: line 1: the columns \"latency_ms\": expected the column \"batch_size\", or --batch N",
        ),
        (
            Csv,
            "batch;latency_ms\n1;5,5\n".into(),
            "f: line 1: \"batch;latency_ms\": expected commas between the columns, and points in the numbers",
        ),
        (Csv, "batch\tlatency_ms\n1\t5\n".into(), "f: line 1: \"batch\\tlatency_ms\": expected commas"),
        (Csv, "batch,latency_ms\n".into(), "f: line 1: 0 rows: expected at least one row"),
        (
            Csv,
            "batch,latency_ms\n1,5\n0,5\n".into(),
            "f: line 3, column \"batch\": \"0\": expected a batch from 1 to 65536",
        ),
        (Csv, "batch,latency_ms\n1,-5\n".into(), "f: line 2, column \"latency_ms\": \"-5\": expected a latency above 0"),
        (Csv, "batch,latency_ms\n1,NaN\n".into(), "f: line 2, column \"latency_ms\": \"NaN\": expected a latency above 0"),
        (
            Csv,
            "batch,latency_ms\n1,1e999\n".into(),
            "f: line 2, column \"latency_ms\": \"1e999\": expected a latency above 0",
        ),
        (Csv, "batch,latency_ms\n1\n".into(), "f: line 2: 1 cells: expected 2 cells"),
        (Csv, "batch,latency_ms,p99_ms\n1,5,4\n".into(), "f: line 2, column \"p99_ms\": \"4\": expected a p99 of at least"),
        (
            Csv,
            "batch,latency_ms,accuracy\n1,5,71\n".into(),
            "f: line 2, column \"accuracy\": \"71\": expected an accuracy from 0 to 1",
        ),
        (Csv, "batch,latency_ms,share\n1,5,0.3\n".into(), "f: line 2, column \"share\": \"0.3\": expected 1, 0.5"),
        (
            Csv,
            "batch,latency_ms,accuracy\n1,5,0.5\n2,6,0.6\n".into(),
            "f: line 3: accuracy 0.6: expected one accuracy of main/resnet50; it is 0.5 at f: line 2",
        ),
        (Csv, "batch,latency_ms\n1,5\n1,6\n".into(), "f: line 3: a second latency of main/resnet50 on t4, batch 1"),
        (Csv, "pipeline,batch,latency_ms\np,1,5\nq,2,5\n".into(), "f: line 3, column \"pipeline\": \"q\": expected \"p\""),
        (
            Csv,
            "variant,batch,latency_ms\na:b,1,5\n".into(),
            "f: line 2: the name \"a:b\": expected a name without '>' and ':'",
        ),
    ]);
}

#[test]
fn a_malformed_report_is_refused_at_its_line_and_column() {
    use ProfileFormat::{ModelAnalyzer, Nexus, PerfAnalyzer};
    let perf = |row: &str| format!("{PERF}1,70,1,1,1,0,9,0,0,1,1,1,1\r\n\r\n{row}\n");
    assert_malformed(&[
        (
            PerfAnalyzer,
            perf("1,70,1,1,1,0,x,0,0,1,1,1,1"),
            "f: line 4, column \"Server Compute Infer\": \"x\": expected microseconds",
        ),
        (
            PerfAnalyzer,
            perf("0,70,1,1,1,0,9,0,0,1,1,1,1"),
            "f: line 4, column \"Concurrency\": \"0\": expected a load above 0",
        ),
        (
            PerfAnalyzer,
            "Model,Batch\n".into(),
            "f: line 1: the columns \"Model,Batch\": expected the columns \"Server Compute Input\"",
        ),
        (
            ModelAnalyzer,
            "Model,GPU UUID,Batch\n".into(),
            "f: line 1: the columns \"Model,GPU UUID,Batch\": expected the column \"Avg Latency",
        ),
        (
            ModelAnalyzer,
            format!("{ANALYZER}net,1,1,c,1/GPU,[1],Yes,1,-,1\n"),
            "f: line 2, column \"p99 Latency (ms)\": \"-\": expected milliseconds above 0",
        ),
        (Nexus, "a:b:1\n".into(), "f: the end: no further line: expected the name of a device"),
        (Nexus, "a:b:1\nT4\nuuid\nBackward\n".into(), "f: line 4: \"Backward\": expected Forward latency"),
        (
            Nexus,
            "a:b:1\nT4\nForward latency\nbatch,latency(ms)\n".into(),
            "f: line 4: \"batch,latency(ms)\": expected batch,latency(us)",
        ),
        (Nexus, format!("{NEXUS}1,x,1,1\n"), "f: line 5, column \"latency(us)\": \"x\": expected microseconds above 0"),
        (Nexus, format!("{NEXUS}1,2\n"), "f: line 5: \"1,2\": expected batch,latency(us)"),
        (Nexus, format!("{NEXUS}Preprocess latency\n"), "f: the end: 0 batches: expected at least one batch"),
    ]);
}

#[test]
fn names_that_a_report_lacks_are_asked_for() {
    let none = GivenNames { task: "main".into(), ..GivenNames::default() };
    let refused = |format, text: &str, names: &GivenNames| import(format, text, names).expect_err(text).to_string();
    let perf = format!("{PERF}1,70,1,1,1,0,9,0,0,1,1,1,1\n");
    assert_eq!(refused(ProfileFormat::PerfAnalyzer, &perf, &none), "f: the report names no model: expected --variant NAME");
    let analyzer = format!("{ANALYZER}net,1,1,c,1/GPU,[1],Yes,1,9,1\n");
    assert_eq!(
        refused(ProfileFormat::ModelAnalyzer, &analyzer, &none),
        "f: the report names no device: expected --hardware NAME"
    );
    let table = refused(ProfileFormat::Csv, "batch,latency_ms\n1,1\n", &none);
    assert!(table.ends_with("expected the column \"variant\", or --variant NAME"), "{table}");
}

#[test]
fn any_text_is_read_or_refused() {
    let hostile = [
        "\u{feff}",
        "\"",
        "\"\n\"",
        ",,,\n,,,\n",
        "\0\0",
        "batch,latency_ms\n\"1,2\n",
        "Forward latency\n\n\n\n",
        "é,ß\n1,2\n",
    ];
    for text in hostile {
        for format in ProfileFormat::NAMES.map(|name| ProfileFormat::from_name(name).expect("a format")) {
            let read = import(format, text, &names());
            assert!(read.is_err(), "{format:?}: {text:?}: {read:?}");
        }
    }
}

/// Keys of `docs/reference/json-export-schema.md` of AIPerf.
const AIPERF: &str = r#"{
  "schema_version": "1.5", "aiperf_version": "0.13.0",
  "input_config": {"endpoint": {"model_names": ["resnet50"]}, "loadgen": {"concurrency": 4}},
  "request_throughput": {"unit": "requests/sec", "avg": 61.5},
  "request_latency": {"unit": "us", "avg": 16500.0, "p50": 16000, "p99": 21000, "count": 600}
}"#;

#[test]
fn aiperf_gives_the_median_in_its_unit() {
    let given = GivenNames { variant: None, batch: Some(2), ..names() };
    let (set, notes) = import(ProfileFormat::Aiperf, AIPERF, &given).expect("a report");
    assert_eq!(rows(&set), [("resnet50", "t4", 2, 16.0, Some(21.0))]);
    let told =
        ["f: latencies have the network and the client in them", "f: the concurrency is 4: latencies have waiting in them"];
    assert_eq!(notes, told);
    let seconds = AIPERF.replace("\"us\"", "\"s\"").replace("\"p50\": 16000, \"p99\": 21000, ", "");
    let (set, _) = import(ProfileFormat::Aiperf, &seconds, &names()).expect("a report");
    assert_eq!(rows(&set), [("resnet50", "t4", 1, 16_500_000.0, None)]);
}

#[test]
fn reports_of_aiperf_with_faults_are_refused() {
    let cases = [
        (AIPERF.replace("\"us\"", "\"tokens\""), "f: /request_latency/unit: \"tokens\": expected ns, us, ms or s"),
        (
            AIPERF.replace("request_latency", "latency"),
            "f: no key \"request_latency\": expected a profile_export_aiperf.json",
        ),
        (AIPERF.replace("16000", "0").replace("16500.0", "0"), "no p50 and no avg above 0"),
        (AIPERF.replace("[\"resnet50\"]", "[]"), "no name of a model: expected --variant NAME"),
        (AIPERF.replace("\"p99\": 21000", "\"p99\": 900"), "p99_ms 0.9"),
    ];
    for (text, wanted) in cases {
        let given = GivenNames { variant: None, ..names() };
        let error = import(ProfileFormat::Aiperf, &text, &given).expect_err("it is refused").to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
