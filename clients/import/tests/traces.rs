//! Do published traces become the arrivals and rates that they state, and are malformed ones refused at their place?
//!
//! The headers are those of the published files; `src/trace` names their sources. The numbers are invented.

use apportion_domain::ArrivalTrace;
use apportion_import::{TimeUnit, TraceChoice, TraceFormat, import_trace};
use apportion_wire::{BadInput, read_trace, write_trace};

fn import(format: TraceFormat, text: &str) -> Result<ArrivalTrace, BadInput> {
    import_with(format, text, &TraceChoice::default())
}

fn import_with(format: TraceFormat, text: &str, choice: &TraceChoice) -> Result<ArrivalTrace, BadInput> {
    import_trace(format, "f", text, choice)
}

/// The milliseconds of the arrivals.
fn millis(trace: Result<ArrivalTrace, BadInput>) -> Vec<f64> {
    match trace {
        Ok(ArrivalTrace::Arrivals(moments)) => moments.iter().map(|m| m.as_millis()).collect(),
        other => panic!("arrivals: {other:?}"),
    }
}

/// The rates.
fn rates(trace: Result<ArrivalTrace, BadInput>) -> Vec<(u64, f64)> {
    match trace {
        Ok(ArrivalTrace::Rates(rows)) => rows,
        other => panic!("rates: {other:?}"),
    }
}

const FUNCTIONS: &str = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\no1,a1,f1,http,60,120,0\no2,a2,f2,timer,0,60,30\n";
const INVOCATIONS: &str = "app,func,end_timestamp,duration\na,hot,3.5,0.5\na,cold,1.25,0.25\na,hot,2.0,0.5\n";
const LLM_2023: &str =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n";
const LLM_2024: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 \
                        00:00:01.009930+00:00,2399,6\n";
const BURST: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation \
                     log\n45.5,GPT-4,1087,230,1317,API log\n";
const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 655, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\n{\"created_time\": \
                        10535, \"input_length\": 672, \"output_length\": 26, \"hash_ids\": [46]}\n";
const TWITTER: &str = "5 8 13\n21";

#[test]
fn counts_of_minutes_become_rates() {
    let all = rates(import(TraceFormat::AzureFunctions, FUNCTIONS));
    assert_eq!(all.len(), 180);
    assert_eq!((all[0], all[60], all[179]), ((0, 1.0), (60, 3.0), (179, 0.5)));
    let one = TraceChoice { function: Some("f2".into()), ..TraceChoice::default() };
    let one = rates(import_with(TraceFormat::AzureFunctions, FUNCTIONS, &one));
    assert_eq!((one[0], one[60]), ((0, 0.0), (60, 1.0)));
}

#[test]
fn invocations_arrive_at_their_start() {
    assert_eq!(millis(import(TraceFormat::AzureFunctions, INVOCATIONS)), [0.0, 500.0, 2000.0]);
    let hot = TraceChoice { function: Some("hot".into()), ..TraceChoice::default() };
    assert_eq!(millis(import_with(TraceFormat::AzureFunctions, INVOCATIONS, &hot)), [0.0, 1500.0]);
}

#[test]
fn dates_count_from_the_first_request() {
    assert_eq!(millis(import(TraceFormat::AzureLlm, LLM_2023)), [0.0, 52.0]);
    assert_eq!(millis(import(TraceFormat::AzureLlm, LLM_2024)), [0.0, 1000.0]);
}

#[test]
fn seconds_and_milliseconds_count_from_the_first_request() {
    assert_eq!(millis(import(TraceFormat::BurstGpt, BURST)), [0.0, 40_500.0]);
    assert_eq!(millis(import(TraceFormat::Mooncake, MOONCAKE)), [0.0, 10_535.0]);
    assert_eq!(rates(import(TraceFormat::Twitter, TWITTER)), [(0, 5.0), (1, 8.0), (2, 13.0), (3, 21.0)]);
}

#[test]
fn a_log_has_its_times_in_any_column_and_unit() {
    assert_eq!(millis(import(TraceFormat::Csv, "user,timestamp_s\nx,12.5\ny,11\n")), [0.0, 1500.0]);
    let by = |column: &str, unit| TraceChoice { column: Some(column.into()), unit: Some(unit), ..TraceChoice::default() };
    let log = "at,took\n2026-01-01T00:00:01.5Z,1700000000000001\n2026-01-01T01:00:00+01:00,1700000000000000\n";
    assert_eq!(millis(import_with(TraceFormat::Csv, log, &by("at", TimeUnit::Date))), [0.0, 1500.0]);
    assert_eq!(millis(import_with(TraceFormat::Csv, log, &by("took", TimeUnit::Micros))), [0.0, 0.001]);
    assert_eq!(rates(import(TraceFormat::Csv, "second,qps\n0,5\n9,6\n")), [(0, 5.0), (9, 6.0)]);
}

#[test]
fn every_trace_is_read_again_as_it_was_written() {
    let inputs = [
        (TraceFormat::Csv, "arrival_s\n1\n2.000000001\n"),
        (TraceFormat::AzureFunctions, FUNCTIONS),
        (TraceFormat::AzureFunctions, INVOCATIONS),
        (TraceFormat::AzureLlm, LLM_2023),
        (TraceFormat::AzureLlm, LLM_2024),
        (TraceFormat::BurstGpt, BURST),
        (TraceFormat::Mooncake, MOONCAKE),
        (TraceFormat::Twitter, TWITTER),
    ];
    for (format, text) in inputs {
        let trace = import(format, text).unwrap_or_else(|e| panic!("{format:?}: {e}"));
        let mut written = Vec::new();
        write_trace(&trace, &mut written).expect("memory does not fail");
        assert_eq!(read_trace("f", &written, None), Ok(trace.clone()), "{format:?}");
        let written = String::from_utf8(written).expect("text");
        assert_eq!(import(TraceFormat::Csv, &written), Ok(trace), "{format:?}: our own file is a log too");
    }
}

#[test]
fn a_malformed_trace_is_refused_at_its_place() {
    use TraceFormat::{AzureFunctions, AzureLlm, BurstGpt, Csv, Mooncake, Twitter};
    let cases = [
        (Csv, "user,at\nx,1\n", "f: line 1: the columns \"user,at\": expected a column \"arrival_ms\""),
        (Csv, "arrival_ms\n-1\n", "f: line 2, column \"arrival_ms\": \"-1\": expected a time of at least 0"),
        (Csv, "arrival_ms\n1e300\n", "f: line 2, column \"arrival_ms\": \"1e300\": expected a time"),
        (Csv, "arrival_ms\nnan\n", "f: line 2, column \"arrival_ms\": \"nan\": expected a time"),
        (Csv, "arrival_ms\n", "f: line 1: 0 rows: expected at least one row"),
        (Csv, "arrival_s\n0\n1e10\n", "f: 316 years: expected at most 285 years"),
        (Csv, "second,qps\n0,x\n", "f: line 2: \"x\": expected a rate"),
        (
            AzureFunctions,
            "HashFunction,Trigger\nf,http\n",
            "f: line 1: the columns \"HashFunction,Trigger\": expected columns 1, 2",
        ),
        (AzureFunctions, "HashFunction,1,2\nf,3,x\n", "f: line 2, column \"2\": \"x\": expected a count of at least 0"),
        (
            AzureFunctions,
            "func,end_timestamp,duration\nf,-1,0\n",
            "f: line 2, column \"end_timestamp\": \"-1\": expected seconds",
        ),
        (
            AzureLlm,
            "TIMESTAMP,ContextTokens\n16/11/2023,5\n",
            "f: line 2, column \"TIMESTAMP\": \"16/11/2023\": expected a date such as",
        ),
        (AzureLlm, "Timestamps\n1\n", "f: line 1: the columns \"Timestamps\": expected the column \"TIMESTAMP\""),
        (
            BurstGpt,
            "Timestamp,Request tokens\n1,2\n",
            "f: line 1: the columns \"Timestamp,Request tokens\": expected the column \"Model\"",
        ),
        (BurstGpt, "Timestamp,Model\n1,m\nsoon,m\n", "f: line 3, column \"Timestamp\": \"soon\": expected a time"),
        (
            Mooncake,
            "{\"timestamp\": 1}\n{\"timestamp\": \"x\"}\n",
            "f: line 2 column 17: \"{\\\"timestamp\\\": \\\"x\\\"}\": expected a JSON object",
        ),
        (Mooncake, "{\"timestamp\": -4}\n", "f: line 1, key \"timestamp\": -4: expected milliseconds of at least 0"),
        (Mooncake, "\n", "f: line 1: an empty file"),
        (Twitter, "5 8\n13 many 2\n", "f: line 2 column 4: \"many\": expected the number of requests of a second"),
        (Twitter, "", "f: 0 rows: expected 1 to"),
    ];
    for (format, text, expected) in cases {
        let found = import(format, text).expect_err(text).to_string();
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
    let no_unit = TraceChoice { column: Some("at".into()), ..TraceChoice::default() };
    let found = import_with(Csv, "at\n1\n", &no_unit).expect_err("no unit").to_string();
    assert_eq!(found, "f: line 1: column \"at\": expected its --unit, one of s, ms, us, ns, date");
    let other = TraceChoice { function: Some("f9".into()), ..TraceChoice::default() };
    let found = import_with(AzureFunctions, FUNCTIONS, &other).expect_err("no such function").to_string();
    assert_eq!(found, "f: no invocation of \"f9\": expected a function of this file, by its hash");
}
