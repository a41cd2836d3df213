//! Which Prometheus servers may the service ask, by the arguments of `apportion serve`?

use apportion_api::{AllowedPrometheus, TokenPlace};
use apportion_prometheus::origin;
use apportion_support::exit::Failure;
use apportion_wire::BadInput;
use clap::Args;
use std::path::PathBuf;

/// The arguments that list the servers.
#[derive(Args, Debug)]
pub struct PrometheusListArgs {
    /// A Prometheus that pipelines may name, by scheme, host and port; may be repeated. Without one, no pipeline can have
    /// its demand from a Prometheus.
    #[arg(long, value_name = "URL", env = "APPORTION_PROMETHEUS", value_delimiter = ',')]
    prometheus: Vec<String>,
    /// File with the bearer token of a listed Prometheus; may be repeated. It is read at each query.
    #[arg(long, value_name = "URL=FILE")]
    prometheus_token_file: Vec<String>,
    /// Variable of the environment with the bearer token of a listed Prometheus; may be repeated.
    #[arg(long, value_name = "URL=NAME")]
    prometheus_token_env: Vec<String>,
    /// File with the authorities that vouch for a listed https server, as PEM; may be repeated. Without it: the authorities
    /// of this machine.
    #[arg(long, value_name = "URL=FILE")]
    prometheus_ca: Vec<String>,
}

impl PrometheusListArgs {
    /// The list.
    ///
    /// # Errors
    /// If a URL is wrong, or if a token or a file belongs to no listed server.
    pub fn read(self) -> Result<Vec<AllowedPrometheus>, Failure> {
        let mut list = Vec::new();
        for url in self.prometheus {
            origin_of("--prometheus", &url)?;
            list.push(AllowedPrometheus { url, token: None, authorities: None });
        }
        for text in &self.prometheus_token_file {
            let Given { server, value } = given(&mut list, "--prometheus-token-file", text)?;
            server.token = Some(TokenPlace::File(PathBuf::from(value)));
        }
        for text in &self.prometheus_token_env {
            let Given { server, value } = given(&mut list, "--prometheus-token-env", text)?;
            server.token = Some(TokenPlace::Variable(value.to_owned()));
        }
        for text in &self.prometheus_ca {
            let Given { server, value } = given(&mut list, "--prometheus-ca", text)?;
            server.authorities = Some(PathBuf::from(value));
        }
        Ok(list)
    }
}

fn origin_of(option: &str, url: &str) -> Result<String, Failure> {
    origin(url).map_err(|error| Failure::BadInput(format!("{option}: {error}")))
}

/// A value for a listed server.
struct Given<'a> {
    server: &'a mut AllowedPrometheus,
    value: &'a str,
}

fn given<'a>(list: &'a mut [AllowedPrometheus], option: &str, text: &'a str) -> Result<Given<'a>, Failure> {
    let wrong = |found: &str, expected: &str| BadInput::one(option, text, found, expected);
    let (url, value) = text.split_once('=').ok_or_else(|| wrong("no =", "URL=VALUE"))?;
    let wanted = origin_of(option, url)?;
    let server = list.iter_mut().find(|server| origin(&server.url).is_ok_and(|found| found == wanted));
    let server = server.ok_or_else(|| wrong("a server that is not listed", "the URL of a --prometheus beside it"))?;
    Ok(Given { server, value })
}
