//! The window of time in which a lease is valid, by the client's clock; all parts of the ttl that mean something.

use std::time::Duration;

use super::time::Moment;

/// The part of the ttl after which the work must stop.
const JEOPARDY_PART: u32 = 2;
/// The part of the ttl after which a heartbeat without an answer is sent again: three fit between a third and a half, six between a sixth
/// and a half.
pub(super) const RESEND_PART: u32 = 18;
/// The part of the ttl after which a connection without any message is given up while a heartbeat is out.
pub(super) const STALL_PART: u32 = 9;
/// The part of the shortest ttl by which the driver of the machine may be late: see [`Machine::slack`](super::Machine::slack).
pub(super) const SLACK_PART: u32 = 32;

/// State of a lease, by the client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Work on.
    Valid,
    /// No renewal was confirmed for half of the ttl: stop now, no other owner can be granted the lock yet.
    Jeopardy,
    /// Over. Another owner may hold the lock.
    Lost,
}

/// The interval of heartbeats, as a part of the ttl.
///
/// A heartbeat that is lost is repeated until half of the ttl is over, so the interval decides how long an outage can be that begins right
/// before a heartbeat. A renewal is not written to the store: beating more often costs messages and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeartbeatInterval {
    /// ttl/3: an outage of ttl/9 is survived whenever it begins, less a round trip and the pause before a reconnect.
    #[default]
    Third,
    /// ttl/6: the same for ttl/4.
    Sixth,
}

impl HeartbeatInterval {
    /// The longest time from one heartbeat to the next.
    pub fn of(self, ttl: Duration) -> Duration {
        match self {
            HeartbeatInterval::Third => ttl / 3,
            HeartbeatInterval::Sixth => ttl / 6,
        }
    }
}

/// A lease as far as the client knows it.
///
/// The server counts the ttl from when it handled the request, which was after the request was sent. Counted from
/// before the sending, the lease ends here earlier than there, however long the answer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseWindow {
    since: Moment,
    ttl: Duration,
}

impl LeaseWindow {
    /// The lease was said to stand for another `left` of its `ttl`, in answer to a request that was sent at `sent`.
    ///
    /// Less than the ttl is left when the answer tells of a grant made earlier: then it counts from then.
    pub fn counted(sent: Moment, ttl: Duration, left: Duration) -> LeaseWindow {
        LeaseWindow { since: sent.minus(ttl.saturating_sub(left)), ttl }
    }

    /// The moment the lease counts from.
    pub const fn since(&self) -> Moment {
        self.since
    }

    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// From here on the work must not go on.
    pub fn jeopardy_at(&self) -> Moment {
        let part = if planted!("jeopardy-told-too-late") { 1 } else { JEOPARDY_PART };
        self.since.plus(self.ttl / part)
    }

    /// From here on another owner may hold the lock.
    pub fn lapses_at(&self) -> Moment {
        self.since.plus(self.ttl)
    }

    /// Latest moment of the next heartbeat.
    pub(super) fn heartbeat_at(&self, interval: HeartbeatInterval) -> Moment {
        self.since.plus(interval.of(self.ttl))
    }

    pub fn state(&self, now: Moment) -> State {
        if now >= self.lapses_at() {
            State::Lost
        } else if now >= self.jeopardy_at() {
            State::Jeopardy
        } else {
            State::Valid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn a_lease_goes_from_valid_to_jeopardy_at_half_of_its_ttl_and_is_lost_at_all_of_it() {
        let window = LeaseWindow::counted(at(1000), TTL, TTL);
        assert_eq!(window.state(at(15_999)), State::Valid);
        assert_eq!(window.state(at(16_000)), State::Jeopardy);
        assert_eq!(window.state(at(30_999)), State::Jeopardy);
        assert_eq!(window.state(at(31_000)), State::Lost);
    }

    #[test]
    fn an_older_grant_counts_from_when_it_was_made() {
        let window = LeaseWindow::counted(at(50_000), TTL, Duration::from_secs(10));
        assert_eq!(window.since(), at(30_000));
        assert_eq!(window.lapses_at(), at(60_000));
    }

    #[test]
    fn a_server_that_promises_more_than_the_ttl_is_not_believed() {
        let window = LeaseWindow::counted(at(50_000), TTL, TTL * 2);
        assert_eq!(window.lapses_at(), at(80_000));
    }
}
