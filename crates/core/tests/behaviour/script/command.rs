//! From a step of a script to the command it stands for.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcceptFence, Acquire, Adapter, Attach, BeginEpoch, Break, BreakSession, ByOwner, Cancel, Claim,
    CloseSession, Command, DeleteFence, Disconnect, Epoch, FencingToken, GracePolicy, Jump,
    KeepAlive, LeaseId, OnDisconnect, OpenSession, OwnerAction, RegisterName, Release, RemoveFile,
    Renew, RequestId, Scope, SecretTicket, Ticket, Under, Unlock, Wait, Withdraw,
};

use super::World;
use super::memory::Call;
use super::step::Wanted;

/// What a lease lasts when the script does not say.
const TTL: Duration = Duration::from_secs(10);

impl World {
    pub(super) fn command(&mut self, wanted: &mut Wanted<'_>) -> Command {
        match wanted.verb {
            "acquire" => Command::Acquire(self.acquire(wanted)),
            "renew" => self.renew(wanted),
            "release" => self.release(wanted),
            "hold" | "let-go" => self.by_owner(wanted),
            "withdraw" => self.withdraw(wanted),
            "unlock" => self.unlock(wanted),
            "cancel" | "break-off" => Command::Cancel(Cancel {
                namespace: wanted.namespace(),
                call: self.memory.find_call(wanted),
                keep_place: wanted.verb == "break-off",
            }),
            "open" => self.open(wanted),
            "keepalive" => Command::KeepAlive(KeepAlive {
                namespace: wanted.namespace(),
                ttl: wanted.duration("ttl"),
                principal: wanted.principal(),
                session: self.session(wanted),
            }),
            "close" => Command::CloseSession(CloseSession {
                namespace: wanted.namespace(),
                principal: wanted.principal(),
                session: self.session(wanted),
            }),
            "attach" => Command::Attach(Attach {
                namespace: wanted.namespace(),
                principal: wanted.principal(),
                session: self.session(wanted),
            }),
            "disconnect" => Command::Disconnect(Disconnect {
                namespace: wanted.namespace(),
                principal: wanted.principal(),
                session: self.session(wanted),
            }),
            "accept" => accept(wanted),
            "delete" => Command::DeleteFence(DeleteFence {
                namespace: wanted.namespace(),
                reason: wanted.option("reason").unwrap_or("asked to").into(),
                register: register(wanted),
            }),
            "break" => Command::Break(Break {
                namespace: wanted.namespace(),
                fence: wanted.number("fence").map(|number| fence(wanted, number)),
                reason: wanted.option("reason").unwrap_or("asked to").into(),
                scope: wanted.scope(),
            }),
            "break-session" => Command::BreakSession(BreakSession {
                namespace: wanted.namespace(),
                reason: wanted.option("reason").unwrap_or("asked to").into(),
                number: self.memory.session_number(wanted, wanted.word("the session")),
            }),
            "remove-file" => Command::RemoveFile(RemoveFile {
                namespace: wanted.namespace(),
                inode: inode(wanted),
            }),
            "epoch" => self.begin_epoch(wanted),
            "jump" => Command::Jump(Jump {
                epoch: Epoch(wanted.number("epoch").unwrap_or_default()),
                fence: fence(wanted, wanted.number("fence").unwrap_or_default()),
            }),
            "suspend" => Command::Suspend,
            "resume" => Command::Resume,
            "tick" => Command::Tick,
            verb => wanted.fail(&format!("there is no verb `{verb}`")),
        }
    }

    fn by_owner(&mut self, wanted: &Wanted<'_>) -> Command {
        let action = if wanted.verb == "hold" {
            let Under::NewLease { id: lease, ttl } = self.under(wanted) else {
                wanted.fail("a hold by owner stands under a lease of its own")
            };
            let reclaim_window = wanted.duration("window").unwrap_or_default();
            OwnerAction::Hold { lease, ttl, reclaim_window }
        } else {
            OwnerAction::Release
        };
        let Scope::Key(key) = wanted.scope() else { wanted.fail("a range is not held by owner") };
        let (namespace, owner) = (wanted.namespace(), wanted.owner());
        Command::ByOwner(ByOwner { namespace, key, owner, action })
    }

    fn acquire(&mut self, wanted: &Wanted<'_>) -> Acquire {
        let call = self.memory.new_call();
        let under = self.under(wanted);
        let request = Acquire {
            call,
            namespace: wanted.namespace(),
            owner: wanted.owner(),
            under,
            wait: wait(wanted),
            keep_place: wanted.flag("keep"),
            request_id: wanted.option("id").map(|id| request_id(wanted, id)),
            reclaim_window: wanted.duration("window").unwrap_or_default(),
            reclaim: wanted.flag("reclaim"),
            metadata: metadata(wanted),
            ticket: None,
            claims: Vec::new(),
        };
        let call = Call {
            id: call,
            namespace: request.namespace.clone(),
            owner: request.owner.clone(),
            scopes: Vec::new(),
            name: wanted.option("call").map(str::to_owned),
            grant_name: wanted.option("as").map(str::to_owned),
        };
        let comes_back = wanted.flag("ticket");
        let number = wanted
            .number("ticket")
            .map(|number| SecretTicket { ticket: Ticket(number), secret: 0 });
        let claims = wanted.claims();
        let scopes: Vec<Scope> = claims.iter().map(|claim| claim.scope.clone()).collect();
        let ticket = match claims.first() {
            Some(Claim { scope, .. }) if comes_back => Some(self.memory.ticket(wanted, scope)),
            Some(_) | None => number,
        };
        self.memory.remember_call(Call { scopes, ..call });
        Acquire { claims, ticket, ..request }
    }

    fn under(&mut self, wanted: &Wanted<'_>) -> Under {
        if let Some(name) = wanted.option("session") {
            return Under::Session(self.memory.lease(wanted, name));
        }
        let id = match wanted.option("lease") {
            Some(name) => self.memory.lease(wanted, name),
            None => self.memory.new_lease(None),
        };
        let ttl = wanted.duration("ttl").unwrap_or(TTL);
        Under::NewLease { id, ttl }
    }

    fn renew(&mut self, wanted: &Wanted<'_>) -> Command {
        let scope = wanted.scope();
        let proof = self.memory.proof(wanted, &scope);
        Command::Renew(Renew {
            namespace: wanted.namespace(),
            scope,
            owner: wanted.owner(),
            lease: proof.lease,
            fence: proof.fence,
            ttl: wanted.duration("ttl"),
        })
    }

    fn release(&mut self, wanted: &Wanted<'_>) -> Command {
        let scope = wanted.scope();
        let proof = self.memory.proof(wanted, &scope);
        Command::Release(Release {
            namespace: wanted.namespace(),
            scope,
            owner: wanted.owner(),
            lease: proof.lease,
            fence: proof.fence,
        })
    }

    fn withdraw(&mut self, wanted: &Wanted<'_>) -> Command {
        let scope = wanted.scope();
        let proof = self.memory.proof(wanted, &scope);
        Command::Withdraw(Withdraw {
            namespace: wanted.namespace(),
            lease: proof.lease,
            fence: proof.fence,
            gained: proof.gained,
        })
    }

    fn unlock(&mut self, wanted: &Wanted<'_>) -> Command {
        let session = wanted.option("session");
        let (inode, range) = wanted.range();
        let session = match session {
            Some(name) => self.memory.lease(wanted, name),
            None => {
                let scope = Scope::range(inode, range);
                self.memory.proof(wanted, &scope).lease
            }
        };
        Command::Unlock(Unlock {
            namespace: wanted.namespace(),
            session,
            owner: wanted.owner(),
            inode,
            range,
        })
    }

    fn open(&mut self, wanted: &Wanted<'_>) -> Command {
        let adapter = wanted.option("adapter").unwrap_or("http");
        let adapter = Adapter::new(adapter)
            .unwrap_or_else(|fault| wanted.fail(&format!("the adapter {fault}")));
        let on_disconnect =
            wanted.duration("keep").map_or(OnDisconnect::Release, OnDisconnect::Keep);
        let (ttl, metadata) = (wanted.duration("ttl").unwrap_or(TTL), metadata(wanted));
        let taken = wanted.option("lease");
        let request_id = wanted.option("id").map(|id| request_id(wanted, id));
        let namespace = wanted.namespace();
        let name = wanted.word("the session's name");
        let id = match taken {
            Some(taken) => self.memory.lease(wanted, taken),
            None => self.memory.new_lease(Some(name)),
        };
        Command::OpenSession(OpenSession {
            namespace,
            id,
            owner: wanted.owner(),
            ttl,
            adapter,
            on_disconnect,
            request_id,
            metadata,
        })
    }

    pub(super) fn session(&self, wanted: &Wanted<'_>) -> LeaseId {
        self.memory.lease(wanted, wanted.word("the session"))
    }

    fn begin_epoch(&mut self, wanted: &Wanted<'_>) -> Command {
        let number = wanted.number("number");
        let grace_length = wanted.duration("grace").unwrap_or(Duration::from_secs(30));
        let grace = match wanted.word("the policy") {
            "conflicting" => GracePolicy::Conflicting,
            "strict" => GracePolicy::Strict,
            "strict-unknown" => GracePolicy::StrictUnknown,
            word => wanted.fail(&format!("`{word}` is no policy")),
        };
        Command::BeginEpoch(BeginEpoch {
            epoch: Epoch(number.unwrap_or(self.table.epoch().0 + 1)),
            grace,
            grace_length,
        })
    }
}

fn accept(wanted: &Wanted<'_>) -> Command {
    let namespace = wanted.namespace();
    let register = register(wanted);
    let number = wanted.word("the fence").parse();
    let number = number.unwrap_or_else(|_| wanted.fail("the fence is no number"));
    let (principal, fence) = (wanted.principal(), fence(wanted, number));
    Command::AcceptFence(AcceptFence { namespace, register, principal, fence })
}

pub(super) fn register(wanted: &Wanted<'_>) -> RegisterName {
    let name = RegisterName::new(wanted.word("the register"));
    name.unwrap_or_else(|fault| wanted.fail(&format!("the register {fault}")))
}

fn inode(wanted: &Wanted<'_>) -> u64 {
    let number = wanted.word("the inode").parse();
    number.unwrap_or_else(|_| wanted.fail("the inode is no number"))
}

fn fence(wanted: &Wanted<'_>, number: u64) -> FencingToken {
    FencingToken::new(number).unwrap_or_else(|| wanted.fail("a fence has 53 bits"))
}

fn request_id(wanted: &Wanted<'_>, id: &str) -> RequestId {
    RequestId::new(id).unwrap_or_else(|fault| wanted.fail(&format!("the request id {fault}")))
}

fn metadata(wanted: &Wanted<'_>) -> Option<Arc<str>> {
    wanted.option("meta").map(Arc::from)
}

fn wait(wanted: &Wanted<'_>) -> Wait {
    match (wanted.duration("wait"), wanted.flag("wait")) {
        (Some(length), _) => Wait::UpTo(length),
        (None, true) => Wait::Forever,
        (None, false) => Wait::Never,
    }
}
