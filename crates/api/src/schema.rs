//! Kinds of text that many messages share, for the description of the interface alone: messages carry plain strings.
//!
//! Lengths are counted in characters here, as a schema can, and in bytes by the server.

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $($rule:tt)*) => {
        $(#[$doc])*
        #[derive(Debug, utoipa::ToSchema)]
        #[schema($($rule)*)]
        pub struct $name(#[expect(dead_code, reason = "read by the derive")] String);
    };
}

text!(
    /// A lock: a name, `path:/srv/a`, `path:/srv/a/**`, `inode:42` or `inode:42@100..200`; up to 512 bytes, none of them
    /// a control character.
    LockName,
    min_length = 1,
    max_length = 512,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+$"
);
text!(
    /// The prefix of the names of locks.
    LockPrefix,
    max_length = 512,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]*$"
);
text!(
    /// The name of an owner, a client, a namespace or a request: up to 255 bytes in one line, none of them invisible.
    Name,
    min_length = 1,
    max_length = 255,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+$"
);
text!(
    /// The way in that a session comes by: `http`, `grpc`, `fuse`, ….
    Adapter,
    min_length = 1,
    max_length = 32,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+$"
);
text!(
    /// The id of a lease or of a session: a secret of its holder.
    LeaseId,
    pattern = r"^[0-9a-f]{32}$"
);
text!(
    /// The number of a file: an integer up to 2^64 - 1.
    Inode,
    pattern = r"^[0-9]{1,20}$"
);
text!(
    /// The point up to which a watcher has seen everything: `EPOCH-REVISION`, or a revision alone.
    Cursor,
    pattern = r"^([0-9]{1,16}-)?[0-9]{1,16}$"
);
text!(
    /// A place in a queue.
    Ticket,
    pattern = r"^[0-9]{1,20}$"
);

/// Never sent: an untagged enum is described only if it can be.
impl serde::Serialize for LockName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit_struct("LockName")
    }
}

/// One lock of a set: its name, or an object that says how it is wanted.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum LockOrClaim {
    Name(LockName),
    Claim(crate::Claim),
}

/// One event of a stream, as `text/event-stream` writes it down.
#[derive(Debug, utoipa::ToSchema)]
pub struct EventFrame {
    /// The event, in JSON.
    #[schema(content_media_type = "application/json")]
    pub data: String,
    /// Its type.
    pub event: String,
    /// The cursor after which a client may resume.
    #[schema(value_type = Option<Cursor>)]
    pub id: Option<String>,
}
