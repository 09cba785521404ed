//! Steps that look at the table, and those that take it through a restart or a snapshot.

use leasehold_core::{
    Claim, Command, Entry, FencingToken, Graph, ListQuery, LockState, LockTable, Namespace,
    OnDisconnect, RegisterName, Scope, SessionView, Tested, invariant,
};

use super::command::register;
use super::step::Wanted;
use super::{World, shown};

/// A snapshot under way: what has been fetched of it, and the digest of the table at its beginning.
pub(super) struct Snapshot {
    digest: u64,
    entries: Vec<Entry>,
}

impl World {
    /// Carries out a step that is no command; says whether it was one of those.
    pub(super) fn read(&mut self, wanted: &mut Wanted<'_>) -> bool {
        let reading = match wanted.verb {
            "get" => World::get,
            "test" => World::test,
            "check" => World::check,
            "register" => World::register,
            "registers" => World::registers,
            "token" => World::token,
            "spell" => World::spell,
            "list" => World::list,
            "graph" => World::graph,
            "sessions" => World::sessions,
            "session" => World::one_session,
            "grace" => World::grace,
            "stats" => World::stats,
            "deadline" => World::deadline,
            "snapshot" => World::snapshot,
            "restart" => World::restart,
            "watch" => World::watch,
            _ => return false,
        };
        self.carry_out(wanted, &Command::Tick);
        reading(self, wanted);
        true
    }

    fn get(&mut self, wanted: &Wanted<'_>) {
        let (namespace, scope) = (wanted.namespace(), wanted.scope());
        let view = self.table.get(&namespace, &scope);
        let mut line = format!("get {scope}: {}", shown::state(view.state));
        if !view.holders.is_empty() {
            line += &format!(" by {}", shown::holders(Some(&scope), &view.holders));
        }
        for waiter in &view.waiters {
            let since = shown::moment(waiter.since);
            line += &format!("; {} waits", waiter.owner);
            if waiter.scope != scope {
                line += &format!(" for {}", waiter.scope);
            }
            line += &format!("{} since {since}", shown::mode(waiter.mode));
            if let Some(deadline) = waiter.deadline {
                line += &format!(" until {}", shown::moment(deadline));
            }
        }
        assert_eq!(view.holders.len(), view.holders_len.min(100), "{view:?}");
        assert_eq!(view.waiters.len(), view.waiters_len.min(100), "{view:?}");
        let highest = view.holders.iter().map(|holder| holder.fence).max();
        assert!(view.last_fence >= highest, "{view:?}");
        if let Some(last) = view.last_fence
            && Some(last) != highest
        {
            line += &format!("; last fence={last}");
        }
        self.say(&line);
    }

    fn test(&mut self, wanted: &Wanted<'_>) {
        let (namespace, owner, mode) = (wanted.namespace(), wanted.owner(), wanted.mode());
        let scope = wanted.scope();
        let before = self.table.digest();
        let claim = Claim { scope, mode };
        let lease = wanted.option("session").map(|name| self.memory.lease(wanted, name));
        let found = match self.table.test(&namespace, &owner, lease, &claim) {
            Ok(Tested { conflict: Some(holder), .. }) => {
                format!("held by {}", shown::holder(None, &holder))
            }
            Ok(Tested { free: true, .. }) => "free".into(),
            Ok(Tested { .. }) => "others wait for it".into(),
            Err(refusal) => format!("refused {}", shown::refusal(&refusal)),
        };
        assert_eq!(before, self.table.digest(), "a test changes nothing");
        self.say(&format!("{owner} test {}: {found}", claim.scope));
    }

    /// Shows the lease only when the step names one.
    fn check(&mut self, wanted: &Wanted<'_>) {
        let lease = wanted.option("lease").is_some() || wanted.flag("leased");
        let scope = wanted.scope();
        let proof = self.memory.proof(wanted, &scope);
        let lease = lease.then_some(proof.lease);
        let check = self.table.check(&wanted.namespace(), &scope, proof.fence, lease);
        let good = match check.why {
            None => "good".into(),
            Some(why) => format!("not good{}", shown::gone(Some(why))),
        };
        assert_eq!(check.valid, check.why.is_none(), "{check:?}");
        let holder = check
            .holder
            .map_or(String::new(), |holder| format!(", {}", shown::holder(Some(&scope), &holder)));
        self.say(&format!("check {scope} fence={}: {good}{holder}", proof.fence));
    }

    /// Everything that is remembered of a token, in whatever namespace.
    fn token(&mut self, wanted: &Wanted<'_>) {
        let number = wanted.word("the token").parse().ok().and_then(FencingToken::new);
        let Some(fence) = number else { wanted.fail("a token has 53 bits") };
        let Some(view) = self.table.token(fence) else {
            return self.say(&format!("token {fence}: unknown"));
        };
        let inside = if view.namespace == Namespace::default() {
            String::new()
        } else {
            format!(" in {}", view.namespace)
        };
        let holders = view.holders.iter().map(|holder| shown::holder(None, holder));
        let ended = view.ended.iter().map(|ended| {
            let (owner, scope, mode) = (&ended.owner, &ended.scope, shown::mode(ended.mode));
            let (since, at) = (shown::moment(ended.since), shown::moment(ended.at));
            format!("{owner} {scope}{mode} since {since} {} at {at}", ended.ending)
        });
        let all: Vec<String> = holders.chain(ended).collect();
        self.say(&format!("token {fence}{inside}: {}", all.join("; ")));
    }

    /// The canonical text of a scope, or why a text is none.
    fn spell(&mut self, wanted: &Wanted<'_>) {
        let line = match Scope::parse(wanted.word("the text")) {
            Ok(scope) => format!("{} {scope}", scope.kind()),
            Err(fault) => format!("no scope: {fault}"),
        };
        self.say(&line);
    }

    fn register(&mut self, wanted: &Wanted<'_>) {
        let (namespace, register) = (wanted.namespace(), register(wanted));
        let mark = self.table.register(&namespace, &register);
        let mark = mark.map_or("no mark".into(), |mark| format!("mark {mark}"));
        self.say(&format!("register {register}: {mark}"));
    }

    /// Goes on after the register that `after` names.
    fn registers(&mut self, wanted: &Wanted<'_>) {
        let after = wanted.option("after").map(RegisterName::new);
        let after = after.map(|name| name.unwrap_or_else(|fault| wanted.fail(&fault.to_string())));
        let len_max = wanted.size("len").unwrap_or(100);
        let found = self.table.registers(&wanted.namespace(), after.as_ref(), len_max);
        let found: Vec<String> =
            found.iter().map(|found| format!("{} {}", found.name, found.high_water)).collect();
        self.say(&format!("registers: {}", found.join(", ")));
    }

    fn list(&mut self, wanted: &Wanted<'_>) {
        let state = wanted.option("state").map(|name| match name {
            "held" => LockState::Held,
            "recovering" => LockState::Recovering,
            "reclaim_window" => LockState::ReclaimWindow,
            _ => wanted.fail(&format!("`{name}` is no state")),
        });
        let session = wanted.option("session");
        let after = self.memory.cursor.take();
        let page = self.table.list(&ListQuery {
            namespace: wanted.namespace(),
            prefix: wanted.option("prefix").unwrap_or_default().into(),
            owner: wanted.option("owner").map(|name| wanted.named(name)),
            session: session.map(|name| self.memory.session_number(wanted, name)),
            within: None,
            inode: wanted.number("inode"),
            state,
            after: after.filter(|_| wanted.flag("next")),
            len_max: wanted.size("len").unwrap_or(100),
            looked_at_max: wanted.size("looks").unwrap_or(1000),
        });
        for lock in &page.locks {
            let holders = shown::holders(Some(&lock.scope), &lock.holders);
            let mut line = format!("list {} {} by {holders}", lock.scope, shown::state(lock.state));
            if lock.waiters_len > 0 {
                line += &format!(", {} waiting", lock.waiters_len);
            }
            self.say(&line);
        }
        let more = if page.next.is_some() { "more" } else { "end" };
        self.say(&format!("list {more}"));
        self.memory.cursor = page.next;
    }

    fn graph(&mut self, wanted: &Wanted<'_>) {
        let waits_max = wanted.size("len").unwrap_or(100);
        let graph: Graph = self.table.graph(&wanted.namespace(), waits_max);
        for holder in &graph.holds {
            self.say(&format!("graph holds {}", shown::holder(None, holder)));
        }
        for wait in &graph.waits {
            let blockers: Vec<&str> = wait.blockers.iter().map(|owner| owner.as_str()).collect();
            let (waiter, scope, mode) = (&wait.waiter, &wait.scope, shown::mode(wait.mode));
            let waited = shown::length(wait.waited);
            let blockers = blockers.join(", ");
            self.say(&format!("graph {waiter} -({scope}{mode})-> {blockers} waited {waited}"));
        }
        for cycle in &graph.cycles {
            self.say(&format!("graph circle {}", shown::cycle(cycle)));
        }
        if graph.waits.is_empty() {
            self.say("graph nobody waits");
        }
    }

    fn sessions(&mut self, wanted: &Wanted<'_>) {
        let after = wanted.option("after");
        let after = after.map_or(0, |name| self.memory.session_number(wanted, name));
        let len_max = wanted.size("len").unwrap_or(100);
        let views = self.table.sessions(&wanted.namespace(), after, len_max);
        for view in &views {
            let line = self.session_line(view);
            self.say(&line);
        }
        if views.is_empty() {
            self.say("no sessions");
        }
    }

    fn one_session(&mut self, wanted: &Wanted<'_>) {
        let namespace = wanted.namespace();
        let view = self.table.session(&namespace, self.session(wanted), &wanted.principal());
        let line = view.map_or("no session".into(), |view| self.session_line(&view));
        self.say(&line);
    }

    fn session_line(&self, view: &SessionView) -> String {
        let mut line = format!(
            "session {} of {} by {} ttl {} until {} grants={} waiters={}",
            self.memory.session_name(view.number),
            view.owner,
            view.adapter,
            shown::length(view.ttl.as_duration()),
            shown::moment(view.deadline),
            view.grants,
            view.waiters
        );
        if let OnDisconnect::Keep(length) = view.on_disconnect {
            line += &format!(" keep={}", shown::length(length));
        }
        for (is_so, word) in [(view.attached, " attached"), (view.recovering, " recovering")] {
            line += if is_so { word } else { "" };
        }
        if let Some(metadata) = &view.metadata {
            line += &format!(" meta={metadata}");
        }
        line
    }

    fn grace(&mut self, _: &Wanted<'_>) {
        let line = match self.table.grace() {
            None => "no grace".into(),
            Some(grace) => format!(
                "grace {} until {} expected={}",
                if grace.strict { "strict" } else { "conflicting" },
                shown::moment(grace.ends_at),
                grace.expected
            ),
        };
        self.say(&line);
    }

    fn stats(&mut self, _: &Wanted<'_>) {
        let stats = self.table.stats();
        self.say(&format!(
            "stats epoch={} fence={} namespaces={} grants={} leases={} sessions={} recovering={} waiters={}",
            stats.epoch.0,
            stats.fence,
            stats.namespaces,
            stats.grants,
            stats.leases,
            stats.sessions,
            stats.recovering,
            stats.waiters
        ));
    }

    fn deadline(&mut self, _: &Wanted<'_>) {
        let line = match self.table.next_deadline() {
            None => "no deadline".into(),
            Some(moment) => format!("next deadline {}", shown::moment(moment)),
        };
        self.say(&line);
    }

    fn watch(&mut self, _: &Wanted<'_>) {
        self.watching = true;
    }

    /// The server starts anew with what lasted.
    fn restart(&mut self, wanted: &Wanted<'_>) {
        let restored = restored(wanted, &self.table, self.table.entries().collect());
        assert_eq!(restored.digest(), self.table.digest(), "everything lasting came back");
        self.table = restored;
        self.say("server restarted");
    }

    fn snapshot(&mut self, wanted: &Wanted<'_>) {
        match wanted.word("what to do") {
            "begin" => {
                self.table.begin_snapshot();
                self.memory.snapshot =
                    Some(Snapshot { digest: self.table.digest(), entries: Vec::new() });
            }
            "next" => {
                let entries = self.table.snapshot_next(wanted.size("len").unwrap_or(1));
                let len = entries.len();
                self.snapshot_under_way(wanted).entries.extend(entries);
                self.say(&format!("snapshot {len} more"));
            }
            "finish" => self.finish_snapshot(wanted),
            word => wanted.fail(&format!("a snapshot cannot {word}")),
        }
    }

    fn snapshot_under_way(&mut self, wanted: &Wanted<'_>) -> &mut Snapshot {
        match &mut self.memory.snapshot {
            Some(snapshot) => snapshot,
            None => wanted.fail("there is no snapshot under way"),
        }
    }

    fn finish_snapshot(&mut self, wanted: &Wanted<'_>) {
        while self.table.is_snapshotting() {
            let entries = self.table.snapshot_next(1);
            self.snapshot_under_way(wanted).entries.extend(entries);
        }
        let snapshot = self.snapshot_under_way(wanted);
        let (digest, entries) = (snapshot.digest, std::mem::take(&mut snapshot.entries));
        let len = entries.len();
        let restored = restored(wanted, &self.table, entries);
        let same = if restored.digest() == digest {
            "the table as it was at the beginning"
        } else {
            "ANOTHER table than at the beginning"
        };
        self.say(&format!("snapshot of {len} entries: {same}"));
    }
}

fn restored(wanted: &Wanted<'_>, table: &LockTable, entries: Vec<Entry>) -> LockTable {
    let restored = LockTable::restore(table.limits().clone(), 8, entries);
    let restored = restored.unwrap_or_else(|unfit| wanted.fail(&unfit.to_string()));
    if let Err(broken) = invariant::check_all(&restored) {
        wanted.fail(&broken.to_string());
    }
    restored
}
