//! ARCHITECTURE.md's table of papers is true: the sources have the parts of its column "there" and lack those of "not yet".

use apportion_tidy::{files, root};

/// Column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    There = 2,
    NotYet = 3,
}
use Column::{NotYet, There};

/// What shows that a phrase of the table is so.
enum Evidence {
    /// The file has the text.
    In(&'static str, &'static str),
    /// No Rust source in the folder has the text.
    Nowhere(&'static str, &'static str),
}
use Evidence::{In, Nowhere};

/// Paper, column, a phrase of that cell, and its evidence. A row that fails wants another table, not another row.
const CLAIMS: &[(&str, Column, &str, Evidence)] = &[
    (
        "InferLine",
        There,
        "greedy planner (Algorithms 1 and 2)",
        In("solver/planning/src/greedy/mod.rs", "Algorithms 1 and 2"),
    ),
    ("InferLine", There, "in the estimator against the trace", In("solver/estimator/src/controllers/tuner.rs", "Envelope")),
    ("InferLine", There, "in the agents against the plan's demand", In("executor/node/src/steering.rs", "Scaler::Tuner")),
    (
        "InferLine",
        There,
        "central queue for each group, in the estimator",
        In("solver/estimator/src/compile/pipeline.rs", "Queueing::Central"),
    ),
    (
        "InferLine",
        There,
        "central queue for each group, in the estimator and in the agents",
        In("executor/node/src/node/queues/mod.rs", "InferLine section 3"),
    ),
    ("InferLine", There, "CG-Mean and CG-Peak", In("solver/planning/src/baselines/coarse.rs", "CG-Peak")),
    ("InferLine", NotYet, "recorded trace", In("executor/node/src/steering.rs", "no trace of the load")),
    ("Loki", There, "both latency rules", In("solver/planning/src/exact/model/covers.rs", "Rule `path`")),
    ("Loki", There, "tables from observed load", In("executor/node/src/steering.rs", "RoutingPolicy::MostAccurateFirst")),
    ("Loki", There, "observed multiplicative factors", In("api/src/decide/correction.rs", "correct_fanout")),
    ("Loki", There, "backup tables", In("executor/node/src/node/route.rs", "with_backup")),
    ("Loki", There, "Proteus", In("solver/planning/src/baselines/proteus.rs", "Proteus")),
    ("INFaaS", There, "precision, threads and provider", In("clients/cli/src/variants/choice.rs", "derive_variants")),
    ("INFaaS", There, "dominated ones marked", In("api/wire/src/dominance.rs", "mark_dominated")),
    ("INFaaS", There, "scaling ILP", In("solver/planning/src/scaling/ilp.rs", "4.2.1")),
    ("INFaaS", There, "its heuristic", In("solver/planning/src/scaling/greedy.rs", "4.2.2")),
    ("INFaaS", There, "model-less requests", In("executor/node/src/chooser.rs", "apportion_serving::Selector")),
    ("INFaaS", There, "replicas that move", In("executor/node/src/node/steering/moves.rs", "INFaaS section 4.1")),
    ("INFaaS", There, "offline requests", In("executor/node/src/node/traffic/offline.rs", "INFaaS")),
    ("INFaaS", There, "VM autoscaler, section 4.2.3", In("api/src/decide/machines.rs", "section 4.2.3")),
    ("INFaaS", There, "rounds by scaling actions", In("api/src/act/rescale.rs", "rescale_pipeline")),
    ("INFaaS", NotYet, "wanted workers", Nowhere("api/", "wanted_workers")),
    ("INFaaS", There, "loaded for a request", In("api/src/decide/on_demand.rs", "WantVerdict::Load")),
    ("INFaaS", There, "unloaded when it is idle", In("api/src/decide/on_demand.rs", "IdleReplica")),
    ("INFaaS", NotYet, "the selector in the estimator", Nowhere("solver/estimator/", "Selector")),
    ("PARD", There, "adaptive priority", In("serving/src/station/dropper.rs", "PARD section 4.3")),
    ("PARD", There, "baselines and ablations", In("domain/src/serving.rs", "PardInstant")),
    ("PARD", There, "continuous tasks in the estimator", In("solver/estimator/src/change/replicas.rs", "ontinuous")),
    (
        "PARD",
        There,
        "continuous tasks in the estimator and in the agents",
        In("executor/src/backend/stepped.rs", "PARD section 7"),
    ),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_table_of_papers_says_what_the_sources_have() {
    let text = read("ARCHITECTURE.md");
    let sources = files(&["rs"]);
    let mut wrong = Vec::new();
    for (paper, column, phrase, evidence) in CLAIMS {
        let row = text.lines().find(|line| line.starts_with(&format!("| {paper} |"))).expect("a row for each paper");
        let cell = row.split('|').nth(*column as usize).expect("a cell");
        if !cell.contains(phrase) {
            wrong.push(format!("{paper}, {column:?}: no {phrase:?}"));
        }
        match evidence {
            In(path, mark) if !read(path).contains(mark) => {
                wrong.push(format!("{paper}, {phrase:?}: no {mark:?} in {path}"))
            }
            Nowhere(folder, mark) => {
                let inside = sources.iter().filter(|(path, _)| path.starts_with(folder));
                assert!(inside.clone().count() > 0, "no source in {folder}");
                let has = inside.filter(|(_, text)| text.contains(mark));
                wrong.extend(has.map(|(path, _)| format!("{paper}, {phrase:?}: {path} has {mark:?}")));
            }
            In(..) => {}
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md's table of papers:\n{}", wrong.join("\n"));
}

#[test]
fn every_cell_of_the_table_has_evidence() {
    let text = read("ARCHITECTURE.md");
    let rows: Vec<&str> =
        text.lines().skip_while(|l| !l.starts_with("| paper |")).skip(2).take_while(|l| l.starts_with('|')).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for column in [There, NotYet] {
            let is_claimed = CLAIMS.iter().any(|c| c.0 == cells[1] && c.1 == column);
            assert_eq!(is_claimed, !cells[column as usize].is_empty(), "{}, {column:?}", cells[1]);
        }
    }
}
