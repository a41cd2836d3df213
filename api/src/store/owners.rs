//! Which project has a resource?

use super::connection::{PgConnection, Result, project_in};
use uuid::Uuid;

/// A kind of resources that projects have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedKind {
    /// A pipeline, by its name: it names its project.
    Pipeline,
    /// A plan, by its identifier.
    Plan,
    /// A trace, by its identifier.
    Trace,
    /// A schedule, by its name: its pipeline names the project.
    Schedule,
    /// The project itself.
    Project,
}

impl OwnedKind {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Plan => "plan",
            Self::Trace => "trace",
            Self::Schedule => "schedule",
            Self::Project => "project",
        }
    }

    /// Whether its keys are names, and no identifiers.
    #[must_use]
    pub fn has_name(self) -> bool {
        matches!(self, Self::Pipeline | Self::Schedule | Self::Project)
    }
}

/// The owner of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no such resource.
    Missing,
    /// It is no project's alone.
    Everybody,
    /// A project.
    Project(String),
}

impl Owner {
    /// Whether it is this project.
    #[must_use]
    pub fn is_project(&self, project: &str) -> bool {
        matches!(self, Self::Project(own) if own == project)
    }
}

/// The owner of a resource. A key that is no identifier names no plan and no trace.
///
/// # Errors
/// The database's.
pub async fn owner_of(db: &mut PgConnection, kind: OwnedKind, key: &str) -> Result<Owner> {
    // Of the ways to write an identifier, PostgreSQL does not read all.
    let key = match (kind.has_name(), key.parse::<Uuid>()) {
        (true, _) => key.to_owned(),
        (false, Ok(id)) => id.to_string(),
        (false, Err(_)) => return Ok(Owner::Missing),
    };
    let select = match kind {
        OwnedKind::Pipeline => concat!("select ", project_in!("spec"), " from pipelines where name = $1"),
        OwnedKind::Plan => "select project from plans where id = $1::uuid",
        OwnedKind::Trace => "select project from traces where id = $1::uuid",
        OwnedKind::Schedule => {
            concat!(
                "select (select ",
                project_in!("p.spec"),
                " from pipelines p where p.name = s.spec ->> 'pipeline') from schedules s where s.name = $1"
            )
        }
        OwnedKind::Project => "select name from projects where name = $1",
    };
    let found: Option<Option<String>> = sqlx::query_scalar(select).bind(key).fetch_optional(db).await?;
    Ok(match found {
        None => Owner::Missing,
        Some(None) => Owner::Everybody,
        Some(Some(project)) => Owner::Project(project),
    })
}
