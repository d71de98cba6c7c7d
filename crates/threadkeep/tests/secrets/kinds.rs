//! What the maintained rules find, kind by kind, and what they leave.

use threadkeep::{Masked, Rules};

use super::made_up::{ALL, DIGITS, HEX, LOWER, UPPER, aws, github, letters, pem};

/// A kind of secret: the rule, a text, and the secret in it.
fn kinds() -> Vec<(&'static str, String, String)> {
    let mut kinds = Vec::new();
    let mut add = |rule, before: &str, secret: String, after: &str| {
        kinds.push((rule, format!("{before}{secret}{after}"), secret));
    };
    add("aws-access-token", "the key is ", aws(1), " in eu-west-1");
    add("github-pat", "token ", github(2), ".");
    let fine = ["github", "_pat_"].concat() + &letters(ALL, 82, 3);
    add("github-fine-grained-pat", "use ", fine, "\n");
    let slack = format!(
        "{}-{}-{}-{}",
        ["xo", "xb"].concat(),
        letters(DIGITS, 12, 4),
        letters(DIGITS, 12, 5),
        letters(ALL, 24, 6)
    );
    add("slack-bot-token", "SLACK: ", slack, "");
    let hook = format!("https://hooks.{}.com/services/{}", "slack", letters(ALL, 44, 7));
    add("slack-webhook-url", "", hook, " posts");
    let openai =
        format!("{}-{}{}{}", ["s", "k"].concat(), letters(ALL, 20, 8), ["T3Blbk", "FJ"].concat(), letters(ALL, 20, 9));
    add("openai-api-key", "key=", openai, "\n");
    let project = format!("{}-proj-{}", ["s", "k"].concat(), letters(ALL, 100, 10));
    add("openai-key", "(", project, ")");
    let anthropic = format!("{}-ant-api03-{}AA", ["s", "k"].concat(), letters(ALL, 93, 11));
    add("anthropic-api-key", "\"", anthropic, "\"");
    let oauth = format!("{}-ant-oat01-{}", ["s", "k"].concat(), letters(ALL, 90, 12));
    add("anthropic-token", "", oauth, "");
    add("gcp-api-key", "'", ["AI", "za"].concat() + &letters(ALL, 35, 13), "'");
    add("stripe-access-token", "with ", ["sk_", "live_"].concat() + &letters(ALL, 24, 14), " we charge");
    add("npm-access-token", "_authToken=", ["np", "m_"].concat() + &letters(LOWER, 36, 15), "\n");
    let pypi = ["pypi-", "AgEIcHlwaS5vcmc"].concat() + &letters(ALL, 80, 16);
    add("pypi-upload-token", "password = ", pypi, "\n");
    let jwt = format!(
        "{0}{1}.{0}{2}.{3}",
        ["ey", "J"].concat(),
        letters(ALL, 33, 17),
        letters(ALL, 40, 18),
        letters(ALL, 43, 19)
    );
    add("jwt", "jwt: ", jwt, "\n");
    add("private-key", "here:\n", pem(20), "\nthat was it");
    add("address-password", "postgres://ann:", letters(LOWER, 14, 21), "@db.example.org:5432/x");
    add("assigned-secret", "PORT=1\nDB_PASSWORD=", letters(LOWER, 16, 22), "\nHOST=x");
    add("generic-api-key", "my_api_key = \"", letters(LOWER, 32, 23), "\"");
    add("authorization-header", "Authorization: Bearer ", letters(ALL, 40, 24), "\r\n");
    let twilio = ["S", "K"].concat() + &letters(HEX, 32, 25);
    add("twilio-api-key", "", twilio, "");
    let sendgrid = ["S", "G."].concat() + &letters(ALL, 66, 26);
    add("sendgrid-api-token", "x=", sendgrid, " ");
    let age = format!("{}-1{}", ["AGE-SECRET", "-KEY"].concat(), letters("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58, 27));
    add("age-secret-key", "", age, "");
    add("jfrog-repository-api-key", "key ", ["AK", "Cp"].concat() + &letters(ALL, 69, 28), " ");
    add("jfrog-reference-token", "token ", ["cm", "Vmd"].concat() + &letters(ALL, 59, 29), " ");
    let assigned = [["arti", "factory"].concat().as_str(), "_token = "].concat();
    add("jfrog-identity-token", &assigned, letters(LOWER, 64, 30), "\n");
    kinds
}

#[test]
fn each_kind_is_found_and_masked() {
    let rules = Rules::maintained().unwrap();
    for (rule, text, secret) in kinds() {
        let found = rules.find(text.as_bytes());
        let start = text.find(&secret).unwrap();
        let is_covered =
            found.iter().any(|found| found.range.start <= start && start + secret.len() <= found.range.end);
        assert!(is_covered, "{rule} in {text:?}: {found:?}");
        assert!(found.iter().any(|found| &*found.rule == rule), "{rule} in {text:?}: {found:?}");
        let masked = rules.mask_text(&text).unwrap();
        assert!(!masked.contains(&secret[..8.min(secret.len())]) || rule == "slack-webhook-url", "{rule}: {masked}");
        assert!(masked.contains("[redacted:"), "{masked}");
        // What stood around it is still there.
        assert!(masked.starts_with(&text[..start.min(3)]), "{masked}");
    }
}

/// The same in a line of JSON, in a string of which it is a part.
#[test]
fn each_kind_is_masked_in_json() {
    let rules = Rules::maintained().unwrap();
    for (rule, text, secret) in kinds() {
        let line = serde_json::json!({"type": "message", "n": 1.0, "text": text}).to_string();
        let Masked::Masked { bytes, found } = rules.mask(line.as_bytes()) else { panic!("{rule}: {line}") };
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert!(!value["text"].as_str().unwrap().contains(&secret), "{rule}: {value}");
        assert_eq!((value["type"].as_str(), value["n"].as_f64()), (Some("message"), Some(1.0)));
        assert!(!found.is_empty());
    }
}

#[test]
fn what_is_no_secret_stays() {
    let rules = Rules::maintained().unwrap();
    for text in [
        "The key to success is a token of appreciation; pass the word, and keep it secret.",
        "let token = self.next_token()?; if token.kind == TokenKind::Key { return Ok(key); }",
        "TOKEN=$GITHUB_TOKEN\nAPI_KEY=${API_KEY}\nPASSWORD=********\nKEY_FILE=/etc/ssl/key.pem",
        "postgres://user:$PASSWORD@host/db and https://example.org:8080/a@b and git@github.com:a/b.git",
        r#"{"input_tokens":12345,"cache_read_input_tokens":67890,"total_token_usage":{"output_tokens":1}}"#,
        r#"{"uuid":"0199d3f2-77b1-7f21-9c0e-3d5a8b6c4e10","parentUuid":null,"sessionId":"0199d3f2-0000-7f21-9c0e-3d5a8b6c4e10"}"#,
        "commit 2b7e151628aed2a6abf7158809cf4f3c762e7160 of the tree, sha256:9f86d081884c7d659a2feaa0c55ad015",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "The literal words AKIA and ghp_ and sk-ant- and npm_install are no secrets.",
        "MAX_TOKENS=200000 TOKEN_COUNT=12345678",
    ] {
        assert_eq!(rules.find(text.as_bytes()), [], "{text}");
        assert_eq!(rules.mask(text.as_bytes()), Masked::NothingFound, "{text}");
    }
    let upper = letters(UPPER, 20, 1);
    assert_eq!(rules.find(upper.as_bytes()), []);
}
