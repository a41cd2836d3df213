//! How does Slurm start the agents of a plan? An array of jobs for each hardware type, with one agent in each job.
//!
//! Options: `man sbatch`. With `--signal=B:TERM@60` the shell of the script gets SIGTERM 60 s before the time is over. It
//! stops the agent, which finishes its work, and puts the job into the queue again.

use crate::agents::{AgentPool, arguments, note_agents, pools};
use crate::groups::ExportGroup;
use crate::request::{Export, ExportContent, ExportRequest};
use crate::settings::is_option;
use crate::text::shell_word;
use std::fmt::Write as _;

/// The longest run of a job without a setting.
const TIME: &str = "1-00:00:00";

/// Scripts for `sbatch`.
pub(crate) fn write(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Export {
    let mut export = Export::default();
    let pools = pools(request, groups);
    for pool in &pools {
        let script = script(request, pool, &mut export);
        export.files.insert(format!("{}.sbatch", pool.name), ExportContent::Script(script));
    }
    let lines: Vec<String> =
        pools.iter().map(|pool| format!("sbatch \"$(dirname \"$0\")\"/{}.sbatch\n", pool.name)).collect();
    let check = ": \"${APPORTION_TOKEN:?set it to the agents' token}\"";
    let submit = format!("#!/bin/bash\n# Submits all agents of the plan.\nset -euo pipefail\n{check}\n{}", lines.concat());
    export.files.insert("submit.sh".into(), ExportContent::Script(submit));
    note_agents(&mut export, &pools);
    export.note(
        "The jobs need the program apportion-agent on the PATH of the nodes, and APPORTION_TOKEN when they are submitted.",
    );
    export.note("Agents talk to each other: the nodes must reach each other on the ports that the agents choose.");
    export
}

/// The options of a pool, one for each line.
fn options(request: &ExportRequest<'_>, pool: &AgentPool, export: &mut Export) -> Vec<String> {
    let device = request.settings.device(&pool.hardware);
    let mut options = vec![
        format!("--job-name={}", pool.name),
        format!("--array=1-{}", pool.agents),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", device.cpus.unwrap_or(1)),
        format!("--time={}", request.settings.time.as_deref().unwrap_or(TIME)),
        "--signal=B:TERM@60".to_owned(),
        "--requeue".to_owned(),
    ];
    let gres = device.gres.unwrap_or_else(|| if pool.is_gpu { "gpu:1".to_owned() } else { String::new() });
    let constraint = device.constraint.unwrap_or_else(|| pool.hardware.clone());
    if !is_option(&constraint) {
        export.note(format!("Hardware {:?} is no name of a feature: the settings can give a constraint.", pool.hardware));
    }
    let given = [("gres", Some(gres)), ("constraint", Some(constraint)), ("partition", device.partition)];
    let given = given.into_iter().filter_map(|(key, text)| text.map(|text| (key, text)));
    options.extend(given.filter(|(_, t)| !t.is_empty() && is_option(t)).map(|(key, text)| format!("--{key}={text}")));
    options
}

fn script(request: &ExportRequest<'_>, pool: &AgentPool, export: &mut Export) -> String {
    let mut text = String::from("#!/bin/bash\n");
    for option in options(request, pool, export) {
        writeln!(text, "#SBATCH {option}").expect("text does not fail");
    }
    let join = request.settings.join.as_deref().unwrap_or("http://127.0.0.1:7071");
    if request.settings.join.is_none() {
        export.note("The agents join the service on their own machine: the key `join` of the settings gives its address.");
    }
    let words: Vec<String> = arguments(pool, join).iter().map(|word| shell_word(word)).collect();
    text.push_str(
        "\nset -uo pipefail\n: \"${APPORTION_TOKEN:?set it to the agents' token}\"\n\
         state=\"${APPORTION_STATE:-$HOME/.apportion}/${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n\
         mkdir -p \"$state\"\n",
    );
    let addresses = "--http 0.0.0.0:0 --ingress-grpc 0.0.0.0:0 --data 0.0.0.0:0";
    writeln!(text, "apportion-agent {} \\\n    --state-dir \"$state\" {addresses} &", words.join(" "))
        .expect("text does not fail");
    text.push_str(
        "agent=$!\n\n# The time is almost over: the agent finishes its work, and the job waits for its next turn.\n\
         again() {\n    kill -TERM \"$agent\"\n    wait \"$agent\"\n    \
         scontrol requeue \"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n    exit 0\n}\ntrap again TERM\nwait \"$agent\"\n",
    );
    text
}
