//! The reason why a history cannot have happened.

use std::fmt;

use crate::history::{LockIndex, Operation, Token};

#[derive(Clone, Debug)]
pub enum Fault {
    /// Two grants with the same token.
    TokenTwice { token: Token, first: Box<Operation>, second: Box<Operation> },
    /// A token that is not higher than one that was known before it was asked for.
    TokenLower { first: Box<Operation>, second: Box<Operation> },
    /// Nothing explains the answer of this operation.
    Unexplained { lock: LockIndex, operation: Box<Operation>, held: String, before: Vec<Operation> },
    /// There are too many explanations to follow them all.
    Undecided { lock: LockIndex, operation: Box<Operation> },
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TokenTwice { token, first, second } => {
                write!(f, "token {token} was given twice\n  {first:?}\n  {second:?}")
            }
            Fault::TokenLower { first, second } => {
                write!(f, "a later token is not higher\n  {first:?}\n  {second:?}")
            }
            Fault::Unexplained { lock, operation, held, before } => {
                write!(
                    f,
                    "lock {lock}: nothing explains\n  {operation:?}\nheld: {held}\nbefore it:"
                )?;
                before.iter().try_for_each(|operation| write!(f, "\n  {operation:?}"))
            }
            Fault::Undecided { lock, operation } => {
                write!(f, "lock {lock}: too many explanations, gave up at\n  {operation:?}")
            }
        }
    }
}
