//! Finding secrets and masking them. Every secret here is made up, and put together while the tests run, so that no scanner
//! takes this file for a leak.

#![cfg(test)]

#[path = "secrets/forms.rs"]
mod forms;
#[path = "secrets/kinds.rs"]
mod kinds;
#[path = "secrets/made_up.rs"]
mod made_up;
#[path = "secrets/rules.rs"]
mod rules;
