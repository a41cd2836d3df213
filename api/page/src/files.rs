//! Which files are in the binary? Those of the folder `assets`, each with its bytes.

/// Names with their bytes, from the folder `assets`.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../assets/", $name)).as_slice())),*]
    };
}

/// All files, by name.
pub const FILES: &[(&str, &[u8])] = files![
    "app.js",
    "css/base.css",
    "css/parts.css",
    "css/replay.css",
    "icon.svg",
    "index.html",
    "lib/access.js",
    "lib/api.js",
    "lib/compare.js",
    "lib/dom.js",
    "lib/events.js",
    "lib/filter.js",
    "lib/format.js",
    "lib/health.js",
    "lib/layout.js",
    "lib/model.js",
    "lib/replay.js",
    "lib/route.js",
    "lib/stream.js",
    "lib/timeline.js",
    "lib/traffic.js",
    "parts/change.js",
    "parts/chart.js",
    "parts/classes.js",
    "parts/graph.js",
    "parts/holds.js",
    "parts/parts.js",
    "parts/plan.js",
    "parts/replay-form.js",
    "parts/replay-result.js",
    "parts/scatter.js",
    "parts/table.js",
    "reports/comparison.js",
    "reports/frontier.js",
    "reports/main.js",
    "reports/plan.js",
    "reports/requests.js",
    "reports/simulation.js",
    "vendor/uplot/LICENSE",
    "vendor/uplot/uPlot.esm.js",
    "vendor/uplot/uPlot.min.css",
    "views/decisions.js",
    "views/events.js",
    "views/fleet.js",
    "views/pipeline.js",
    "views/pipeline-plans.js",
    "views/plan.js",
    "views/plans.js",
    "views/profiles.js",
    "views/replay.js",
    "views/targets.js",
    "views/what-if.js",
];
