//! How is a configuration printed? Without its secrets: the token of agents, and the password in the URL of the database.

use crate::serve::ServiceConfig;
use std::fmt;

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ServiceConfig");
        shown.field("database_url", &self.database_url.as_ref().map(|_| "(secret)"));
        shown.field("token", &self.token.as_ref().map(|_| "(secret)"));
        shown.field("data_dir", &self.data_dir).field("model_files", &self.model_files);
        shown.field("http", &self.http).field("grpc", &self.grpc).field("access", &self.access);
        shown.field("retention", &self.retention).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_service_has_no_secret() {
        let mut config = ServiceConfig::new("/data");
        config.database_url = Some("postgres://me:hunter2@host/name".into());
        config.token = Some("the token of agents".into());
        let printed = format!("{config:?}");
        assert!(printed.contains("/data") && printed.contains("(secret)"), "{printed}");
        assert!(!printed.contains("hunter2") && !printed.contains("the token of agents"), "{printed}");
    }
}
