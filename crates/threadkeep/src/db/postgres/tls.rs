//! Encrypted connections.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::postgres::address::Certificate;
use crate::error::{Error, Result};

/// A connector that judges certificates as asked.
pub(crate) fn connector(certificate: &Certificate) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
    let config = match certificate {
        Certificate::Any => {
            let verifier = Arc::new(AnyCertificate { provider });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        Certificate::OfSystem => builder.with_root_certificates(roots_of_system()?).with_no_client_auth(),
        Certificate::Of(file) => builder.with_root_certificates(roots_in(file)?).with_no_client_auth(),
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
    let bytes = std::fs::read(file).map_err(|error| Error::io("read", file, &error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or_else(|| no_certificates(file))?;
    }
    if roots.is_empty() { Err(no_certificates(file)) } else { Ok(roots) }
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
