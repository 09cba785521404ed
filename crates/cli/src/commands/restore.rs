//! `leasehold restore`

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use leasehold_server::{FencingToken, OldTokens, restore, tokens_in};
use serde::Serialize;

use super::Answered;
use super::backup::{data_file, not_copied};
use super::scratch::Scratch;
use crate::args::{Restore, TokensAfter};
use crate::failure::{EXIT_IO, EXIT_USAGE, Failure};
use crate::output::Output;

#[derive(Debug, Serialize)]
struct Done<'a> {
    file: &'a Path,
    /// Tokens go on above this one.
    fencing_token: u64,
    epoch: u64,
    dry_run: bool,
}

pub(crate) fn run(out: &Output, args: &Restore) -> Answered {
    let fence_above = match args.fence_above.map(FencingToken::new) {
        None => None,
        Some(Some(fence)) if fence <= FencingToken::JUMP_MAX => Some(fence),
        Some(_) => {
            let said = format!(
                "--fence-above leaves too few fencing tokens: it may be {} at most",
                FencingToken::JUMP_MAX
            );
            return Err(Failure::new(EXIT_USAGE, said).next("nothing was changed"));
        }
    };
    let to = data_file(&args.place)?;
    check(&args.from, &to)?;
    let tokens = old_tokens(args)?;
    if args.dry_run {
        return dry_run(out, args, &to, (fence_above, tokens));
    }
    if let Some(folder) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            Failure::new(EXIT_IO, format!("cannot make {}: {error}", folder.display()))
        })?;
    }
    let restored =
        restore(&args.from, &to, fence_above, tokens).map_err(|error| not_copied(&error))?;
    let (fencing_token, epoch) = (restored.fence.get(), restored.epoch.0);
    let done = Done { file: &to, fencing_token, epoch, dry_run: false };
    out.answer(&done, |_| {
        format!("{}: fencing tokens go on above {}\n", to.display(), done.fencing_token)
    });
    Ok(0)
}

/// The same into a folder that goes again: it lies beside the backup, where there is room for another.
fn dry_run(
    out: &Output,
    args: &Restore,
    to: &Path,
    (fence_above, tokens): (Option<FencingToken>, OldTokens),
) -> Answered {
    let scratch = Scratch::beside(&args.from)?;
    let restored = restore(&args.from, &scratch.path().join("restored.db"), fence_above, tokens)
        .map_err(|error| not_copied(&error))?;
    let (fencing_token, epoch) = (restored.fence.get(), restored.epoch.0);
    let done = Done { file: to, fencing_token, epoch, dry_run: true };
    out.answer(&done, |_| {
        let what = "the backup can be restored; fencing tokens would go on above";
        format!("{}: {what} {fencing_token}\n", to.display())
    });
    Ok(0)
}

/// Tokens may have been revoked since the backup was made, so there is no default.
fn old_tokens(args: &Restore) -> Result<OldTokens, Failure> {
    match args.tokens {
        Some(TokensAfter::Keep) => return Ok(OldTokens::Keep),
        Some(TokensAfter::Revoke) => return Ok(OldTokens::Revoke),
        None => {}
    }
    match tokens_in(&args.from).map_err(|error| not_copied(&error))? {
        0 => Ok(OldTokens::Keep),
        count => {
            let said = format!(
                "the backup holds {count} tokens, and some may have been revoked since: are they good again?"
            );
            Err(Failure::new(EXIT_USAGE, said).next(
                "--tokens keep, or --tokens revoke and `leasehold token bootstrap` for a new one; nothing was changed",
            ))
        }
    }
}

fn check(from: &Path, to: &Path) -> Result<(), Failure> {
    if !from.exists() {
        let said = format!("there is no backup {}", from.display());
        return Err(Failure::new(EXIT_IO, said).next("`leasehold backup` makes one"));
    }
    if to.exists() {
        let said = format!("there is data already: {}", to.display());
        return Err(Failure::new(EXIT_IO, said)
            .next("nothing was changed; restore to another place, or move what is there away"));
    }
    Ok(())
}
