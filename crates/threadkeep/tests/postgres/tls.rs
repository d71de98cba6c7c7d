//! Encrypted connections, to a server that has certificates.
