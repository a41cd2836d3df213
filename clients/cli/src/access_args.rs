//! Who may use the HTTP interface, by the arguments of `apportion serve`?

use apportion_api::{AccessConfig, RateLimit, TOKEN_CHARS_MIN, TokenRule};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use clap::Args;
use std::num::NonZero;

/// The arguments about access.
#[derive(Args, Debug)]
pub struct AccessArgs {
    /// File with a token that allows everything (`apportion token new`). A service that other machines reach needs it, or a
    /// token made before.
    #[arg(long, value_name = "FILE", env = "APPORTION_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<String>,
    /// Ask each client for a token, on loopback too.
    #[arg(long)]
    require_token: bool,
    /// A name by which browsers reach this service through a proxy, if it asks for no token; may be repeated.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Requests that each token may send in a second, as a mean. Clients without a token share one limit.
    #[arg(long, value_name = "N", default_value_t = RateLimit::DEFAULT.requests_per_s)]
    requests_per_s: NonZero<u32>,
    /// Requests that each token may send at once, after a pause.
    #[arg(long, value_name = "N", default_value_t = RateLimit::DEFAULT.burst_max)]
    requests_burst: NonZero<u32>,
}

impl AccessArgs {
    /// The configuration.
    ///
    /// # Errors
    /// If the file cannot be read, or if its token is too short.
    pub fn read(self) -> Result<AccessConfig, Failure> {
        let token = if self.require_token { TokenRule::Always } else { TokenRule::BeyondLoopback };
        let admin_token = self.admin_token_file.as_deref().map(admin_token).transpose()?;
        let rate = RateLimit { requests_per_s: self.requests_per_s, burst_max: self.requests_burst };
        Ok(AccessConfig { admin_token, token, hosts: self.allow_host, rate })
    }
}

fn admin_token(file: &str) -> Result<String, Failure> {
    let text = input::read_text(file)?;
    let token = text.trim();
    if token.len() < TOKEN_CHARS_MIN {
        let found = format!("{} characters", token.len());
        return Err(BadInput::one(file, "", found, format!("a token of at least {TOKEN_CHARS_MIN} characters")).into());
    }
    Ok(token.to_owned())
}
