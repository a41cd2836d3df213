//! The folder of a new database, made once for all test processes of one run of nextest: initdb takes a second of a
//! processor.

use super::open_dir;
use apportion_api::database::PrivateDatabase;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Templates of other runs are removed once they are this old.
const KEPT: Duration = Duration::from_secs(3_600);

/// Makes `to` a copy of the run's template. Outside nextest, and where copying fails, `to` stays absent: the server's start
/// then makes the database.
pub async fn copy_to(to: &Path) {
    let Ok(run) = std::env::var("NEXTEST_RUN_ID") else { return };
    let template = templates().join(run);
    if !template.exists() {
        make(&template).await;
    }
    if !copy_folder(&template, to) {
        let _absent = std::fs::remove_dir_all(to);
    }
}

/// Where the templates are, by the names of their runs.
fn templates() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("databases")
}

/// Makes the template. Of several processes that do so at once, one keeps its own.
async fn make(template: &Path) {
    remove_old();
    let folder = open_dir();
    let made = folder.path().join("postgres");
    PrivateDatabase::start(&made).await.expect("PostgreSQL is installed and starts").stop().await;
    let own = template.with_extension(std::process::id().to_string());
    let is_there = std::fs::create_dir_all(templates()).is_ok() && copy_folder(&made, &own);
    if !is_there || std::fs::rename(&own, template).is_err() {
        let _absent = std::fs::remove_dir_all(&own);
    }
}

fn remove_old() {
    for entry in std::fs::read_dir(templates()).into_iter().flatten().flatten() {
        let age = entry.metadata().ok().and_then(|of| of.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > KEPT) {
            let _in_use = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Copies a folder with its owners and rights to a place where nothing is. Says whether that worked.
fn copy_folder(from: &Path, to: &Path) -> bool {
    Command::new("cp").arg("-aT").arg(from).arg(to).status().is_ok_and(|status| status.success())
}
