//! What holds for the whole repository and no compiler checks: direction, migrations, sizes, names, documents, licences.

#![cfg(test)]

#[path = "tidy/direction.rs"]
mod direction;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/migrations.rs"]
mod migrations;
#[path = "tidy/parity.rs"]
mod parity;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/texts.rs"]
mod texts;
