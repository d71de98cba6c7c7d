//! The public clauses that every store passes.
