//! The folder of a new database, made once for all test processes of one run of nextest: initdb takes a second of a
//! processor, and the migrations a quarter.
//!
//! The tests of the service have this file as a module of their own, by its path.

use apportion_api::database::{Database, PrivateDatabase};
use sqlx::Connection;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Templates of other runs are removed once they are this old.
const KEPT: Duration = Duration::from_secs(3_600);

/// Makes `to` a copy of the run's template in the folder `templates`. Its database `migrated` has the schema of this
/// release: `postgres`, which a service uses by default, or `template1`, which new databases are copies of. Outside
/// nextest, and where copying fails, `to` stays absent: the server's start then makes the database. A folder that is there
/// stays as it is.
pub async fn copy_to(to: &Path, templates: &Path, migrated: &str) {
    let Ok(run) = std::env::var("NEXTEST_RUN_ID") else { return };
    let Some(folder) = to.parent() else { return };
    if to.exists() || std::fs::create_dir_all(folder).is_err() {
        return;
    }
    let template = templates.join(format!("{run}-{migrated}"));
    if !template.exists() {
        make(&template, templates, migrated).await;
    }
    if !copy_folder(&template, to) {
        let _absent = std::fs::remove_dir_all(to);
    }
}

/// Makes the template. Of several processes that do so at once, one keeps its own.
async fn make(template: &Path, templates: &Path, migrated: &str) {
    remove_old(templates);
    let folder = tempfile::tempdir().expect("a folder");
    // The server's user may be another one.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).expect("our own folder");
    let made = folder.path().join("postgres");
    let database = PrivateDatabase::start(&made).await.expect("PostgreSQL is installed and starts");
    let url = database.url();
    let at = url.rfind('/').expect("a URL");
    let opened = Database::open(Some(&format!("{}/{migrated}", &url[..at])), folder.path()).await;
    opened.expect("the migrations run").close().await;
    drop_second_template(&url).await;
    database.stop().await;
    let own = template.with_extension(std::process::id().to_string());
    let is_there = std::fs::create_dir_all(templates).is_ok() && copy_folder(&made, &own);
    if !is_there || std::fs::rename(&own, template).is_err() {
        let _absent = std::fs::remove_dir_all(&own);
    }
}

/// Drops a database that nothing here uses. It is a third of all files that each test copies and removes.
async fn drop_second_template(url: &str) {
    let mut connection = sqlx::PgConnection::connect(url).await.expect("our own database");
    for statement in ["alter database template0 is_template false", "drop database template0"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("our own database");
    }
    connection.close().await.expect("it closes");
}

fn remove_old(templates: &Path) {
    for entry in std::fs::read_dir(templates).into_iter().flatten().flatten() {
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
