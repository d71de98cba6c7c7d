//! Encrypted connections.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::postgres::address::Certificate;
use crate::error::{Error, Result};

/// A connector that judges certificates as asked, and shows this client's own where it has one: the files of it and of its key.
pub(crate) fn connector(certificate: &Certificate, identity: Option<&(PathBuf, PathBuf)>) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
    let builder = match certificate {
        Certificate::Any => {
            let verifier = Arc::new(AnyCertificate { provider });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        Certificate::OfSystem => builder.with_root_certificates(roots_of_system()?),
        Certificate::Of(file) => builder.with_root_certificates(roots_in(file)?),
    };
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificates, key)) => {
            let chain = certificates_in(certificates)?;
            builder.with_client_auth_cert(chain, key_in(key)?).map_err(|_| {
                let (certificates, key) = (certificates.display(), key.display());
                Error::invalid(
                    "store address",
                    format!("the key in {key} is not that of the certificate in {certificates}"),
                )
            })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots_of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let detail = "this system names no certificate authorities; name a file of them with sslrootcert";
        return Err(Error::Backend { detail: detail.to_owned() });
    }
    Ok(roots)
}

fn roots_in(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(file)? {
        roots.add(certificate).map_err(|_| no_certificates(file))?;
    }
    Ok(roots)
}

fn certificates_in(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = std::fs::read(file).map_err(|error| Error::io("read", file, &error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| no_certificates(file))
}

/// Reads a private key, which nobody else may read.
fn key_in(file: &Path) -> Result<PrivateKeyDer<'static>> {
    let bytes = std::fs::read(file).map_err(|error| Error::io("read", file, &error))?;
    let meta = std::fs::metadata(file).map_err(|error| Error::io("look at", file, &error))?;
    if meta.permissions().mode() & 0o077 != 0 {
        let reason = format!("others can read the key in {}; `chmod go-rwx` keeps it to you", file.display());
        return Err(Error::invalid("store address", reason));
    }
    let no_key = |_| Error::invalid("store address", format!("{} holds no private key in PEM form", file.display()));
    PrivateKeyDer::from_pem_slice(&bytes).map_err(no_key)
}

fn no_certificates(file: &Path) -> Error {
    Error::invalid("store address", format!("{} holds no certificates in PEM form", file.display()))
}

fn failed(error: &rustls::Error) -> Error {
    Error::Backend { detail: format!("TLS: {error}") }
}

/// Takes any certificate: what `sslmode=prefer` and `require` mean. It keeps out who listens, not who answers.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
