//! Encrypting what leaves the machine, and decrypting what comes to it, in the format of age (age-encryption.org/v1).

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use age::secrecy::SecretString;
use age::{DecryptError, Decryptor, Encryptor, Identity, IdentityFile, Recipient};
use clap::Args;

use crate::errors::{Code, Failure, Report};

/// How every file begins that age encrypted.
const MAGIC: &[u8] = b"age-encryption.org/v1";
const PASSPHRASE_HELP: &str = "The first line of this file is the passphrase";

/// To whom it is encrypted. Without any of these it is not.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct EncryptionArgs {
    /// Encrypt to this age recipient (age1…), or to all in this file; may be given several times
    #[arg(long = "encrypt-to", value_name = "RECIPIENT|FILE", requires = "bundle", conflicts_with = "passphrase_file")]
    recipients: Vec<String>,
    #[arg(long, value_name = "FILE", requires = "bundle", help = PASSPHRASE_HELP)]
    passphrase_file: Option<PathBuf>,
}

/// What an encrypted file is opened with.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct DecryptionArgs {
    /// A file of age identities (AGE-SECRET-KEY-1…); may be given several times
    #[arg(long = "identity", value_name = "FILE")]
    identities: Vec<PathBuf>,
    #[arg(long, value_name = "FILE", help = PASSPHRASE_HELP)]
    passphrase_file: Option<PathBuf>,
}

impl EncryptionArgs {
    /// Whether anything is to be encrypted.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.recipients.is_empty() || self.passphrase_file.is_some()
    }

    /// Encrypts what is written; says what the writing gave.
    pub(crate) fn write<T>(
        &self,
        out: &mut (dyn Write + Send),
        write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let encryptor = match &self.passphrase_file {
            Some(file) => Encryptor::with_user_passphrase(passphrase(file)?),
            None if self.recipients.is_empty() => return write(out),
            None => {
                let recipients = self.recipients()?;
                let all = recipients.iter().map(|recipient| &**recipient as &dyn Recipient);
                Encryptor::with_recipients(all).map_err(|error| Report::usage(format!("--encrypt-to: {error}")))?
            }
        };
        let mut stream = encryptor.wrap_output(out)?;
        let written = write(&mut stream)?;
        stream.finish()?.flush()?;
        Ok(written)
    }

    fn recipients(&self) -> Result<Vec<Box<dyn Recipient + Send>>, Failure> {
        let mut all: Vec<Box<dyn Recipient + Send>> = Vec::new();
        for given in &self.recipients {
            if let Ok(recipient) = given.parse::<age::x25519::Recipient>() {
                all.push(Box::new(recipient));
                continue;
            }
            let text = std::fs::read_to_string(given).map_err(|error| {
                let message = format!("--encrypt-to {given}: it is no age recipient, and no file of them ({error})");
                Report::usage(message).hint("`age-keygen -y` prints the recipient of a key")
            })?;
            for (number, line) in text.lines().map(str::trim).enumerate() {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let recipient = line.parse::<age::x25519::Recipient>();
                let recipient = recipient.map_err(|_| {
                    Report::usage(format!("--encrypt-to {given}: line {} is no age recipient", number + 1))
                })?;
                all.push(Box::new(recipient));
            }
        }
        match all.is_empty() {
            true => Err(Report::usage("--encrypt-to: the file names no recipient").into()),
            false => Ok(all),
        }
    }
}

impl DecryptionArgs {
    /// Whether anything was given to open a file with.
    pub(crate) fn is_given(&self) -> bool {
        !self.identities.is_empty() || self.passphrase_file.is_some()
    }

    /// Whether a file that begins like this was encrypted.
    pub(crate) fn is_encrypted(head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    /// What an encrypted file holds.
    pub(crate) fn read(&self, file: File, path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
        let decryptor = Decryptor::new_buffered(BufReader::new(file)).map_err(|error| refused(&error, path))?;
        let identities = self.identities(decryptor.is_scrypt(), path)?;
        let all = identities.iter().map(|identity| &**identity as &dyn Identity);
        let reader = decryptor.decrypt(all).map_err(|error| refused(&error, path))?;
        Ok(Box::new(reader))
    }

    fn identities(&self, by_passphrase: bool, path: &Path) -> Result<Vec<Box<dyn Identity + Send + Sync>>, Failure> {
        let mut all: Vec<Box<dyn Identity + Send + Sync>> = Vec::new();
        for file in &self.identities {
            let failed = |error: io::Error| Report::usage(format!("--identity {}: {error}", file.display()));
            let read = IdentityFile::from_buffer(BufReader::new(File::open(file).map_err(failed)?)).map_err(failed)?;
            let wrong = |error| Report::usage(format!("--identity {}: {error}", file.display()));
            all.extend(read.into_identities().map_err(wrong)?);
        }
        if let Some(file) = &self.passphrase_file {
            all.push(Box::new(age::scrypt::Identity::new(passphrase(file)?)));
        }
        if all.is_empty() {
            let way = if by_passphrase { "--passphrase-file FILE" } else { "--identity FILE" };
            let message = format!("{} is encrypted, and nothing was given to open it with", path.display());
            return Err(Report::new(Code::Usage, "invalid", message).hint(format!("give {way}")).into());
        }
        Ok(all)
    }
}

fn passphrase(file: &Path) -> Result<SecretString, Failure> {
    let failed = |error: io::Error| Report::usage(format!("--passphrase-file {}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(failed)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(SecretString::from(line.to_owned())),
        None => Err(Report::usage(format!("--passphrase-file {}: its first line is empty", file.display())).into()),
    }
}

/// What is said of a file that can't be opened, by what can be done about it.
fn refused(error: &DecryptError, path: &Path) -> Failure {
    let place = path.display();
    let report = match error {
        DecryptError::NoMatchingKeys | DecryptError::KeyDecryptionFailed | DecryptError::DecryptionFailed => {
            Report::new(Code::NotDone, "invalid", format!("{place}: what was given does not open it"))
                .hint("it was encrypted to another key, or with another passphrase")
        }
        DecryptError::ExcessiveWork { .. } => {
            Report::new(Code::NotDone, "invalid", format!("{place}: opening it would take this machine too long"))
        }
        other => Report::new(Code::Corrupt, "corrupt", format!("{place}: {other}"))
            .hint("the file was cut or changed on its way; ask for it again"),
    };
    report.into()
}
