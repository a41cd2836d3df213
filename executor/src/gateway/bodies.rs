//! How fast must a body come, and how many bytes of bodies may be open at once, before their requests are admitted?

use crate::shares::{ClientShare, ClientShares};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a body may take beside what its bytes take at [`BODY_RATE_MIN`].
pub const BODY_GRACE_MAX: Duration = Duration::from_secs(5);
/// Fewest bytes in a second at which a body may come.
pub const BODY_RATE_MIN: usize = 64 * 1024;
/// Most bytes of bodies that are being read.
pub const OPEN_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The first bytes of each body do not count: small requests are read however many large ones are under way.
pub const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;

/// When what is still to come of a body is too late.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    began: Instant,
    bytes: usize,
}

impl Pace {
    /// A body begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self { began: Instant::now(), bytes: 0 }
    }

    /// So many bytes more have come.
    pub fn came(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Until when more must come, or its end.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.began + BODY_GRACE_MAX + Duration::from_secs_f64(self.bytes as f64 / BODY_RATE_MIN as f64)
    }
}

/// What one body holds while it is read.
#[derive(Debug)]
pub struct OpenBody {
    share: ClientShare,
    bytes: usize,
}

impl OpenBody {
    /// Nothing yet.
    #[must_use]
    pub fn begin(shares: &Arc<ClientShares>, address: IpAddr) -> Self {
        Self { share: shares.open(address), bytes: 0 }
    }

    /// So many bytes more have come; false if there is no room for them.
    #[must_use]
    pub fn came(&mut self, bytes: usize) -> bool {
        let before = self.bytes.max(SMALL_BODY_BYTES_MAX);
        self.bytes += bytes;
        self.share.grow(self.bytes.max(SMALL_BODY_BYTES_MAX) - before)
    }

    /// It has been read.
    pub fn clear(&mut self) {
        self.share.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn a_body_has_a_grace_period_plus_time_by_size() {
        let mut pace = Pace::begin();
        let first = pace.deadline();
        pace.came(BODY_RATE_MIN);
        assert_eq!(pace.deadline() - first, Duration::from_secs(1));
    }

    #[test]
    fn only_what_is_more_than_a_small_body_counts() {
        let shares = ClientShares::new(8 * SMALL_BODY_BYTES_MAX);
        let begin = || OpenBody::begin(&shares, Ipv4Addr::LOCALHOST.into());
        let (mut large, mut small) = (begin(), begin());
        assert!(large.came(SMALL_BODY_BYTES_MAX / 2) && large.came(SMALL_BODY_BYTES_MAX / 2));
        assert_eq!(shares.held(), 0);
        assert!(large.came(7 * SMALL_BODY_BYTES_MAX) && !large.came(1));
        assert_eq!(shares.held(), 7 * SMALL_BODY_BYTES_MAX);
        assert!(small.came(SMALL_BODY_BYTES_MAX) && !small.came(1));
        large.clear();
        assert_eq!(shares.held(), 0);
    }
}
