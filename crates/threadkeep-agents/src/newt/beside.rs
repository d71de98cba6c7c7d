//! What newt keeps beside a conversation, in the library's words.

use std::path::PathBuf;

use serde_json::{Map, Value};
use threadkeep::Status;

use crate::codec::Skip;
use crate::companion::{Companion, Shared};
use crate::rows::Row;

/// Labels of the first versions, and what newt makes of them at every open.
const COGNITION: [(&str, &str); 4] =
    [("glancing", "zen"), ("pondering", "rational"), ("deliberating", "thoughtful"), ("contemplating", "meticulous")];
/// Tenacities that were two things at once: each is normal, and an initiative.
const TENACITY: [(&str, &str); 3] = [("relaxed", "patient"), ("standard", "measured"), ("insistent", "decisive")];

/// What the row of a conversation says beside its title and folder, and what of it can't be told.
pub(super) fn of_conversation(row: &Row) -> (Vec<Companion>, Vec<String>) {
    let mut companions = Vec::new();
    let mut remarks = Vec::new();
    for (column, name) in [("scratchpad", "scratchpad"), ("plan", "plan"), ("preference_pin", "pin")] {
        let text = match row.text(column) {
            Ok(text) => text.unwrap_or("{}"),
            Err(skip) => {
                remarks.push(skip.reason);
                continue;
            }
        };
        if text.trim() == "{}" || text.is_empty() {
            continue;
        }
        let text =
            if name == "pin" { migrated_pin(text, row.word(super::MIGRATIONS).is_some()) } else { text.to_owned() };
        companions.push(Companion::Document { name, text });
    }
    if let Some(roadmap) = row.word("roadmap_id") {
        companions.push(Companion::Link { roadmap, node: row.word("node_id") });
    }
    if let Some(reason) = row.word("end_reason") {
        companions.push(Companion::Standing { status: Status::Completed, end_reason: Some(reason) });
    }
    (companions, remarks)
}

/// What a tenacity that is a label of now, too, was before newt's one migration of pins: the same, and this initiative.
const RELENTLESS: (&str, &str) = ("relentless", "eager");

/// A pin as newt reads it: with the labels of now. What is no object, or has none of the old labels, stays byte for byte. `is_migrated`
/// is whether newt has gone through its pins once, so that what was an old label is one of now.
fn migrated_pin(text: &str, is_migrated: bool) -> String {
    let Ok(mut pin) = serde_json::from_str::<Map<String, Value>>(text) else {
        return text.to_owned();
    };
    let before = pin.clone();
    let label = |pin: &Map<String, Value>, field: &str| pin.get(field).and_then(Value::as_str).map(str::to_owned);
    let cognition = label(&pin, "cognition");
    if let Some((_, now)) = COGNITION.iter().find(|(old, _)| cognition.as_deref() == Some(*old)) {
        pin.insert("cognition".to_owned(), Value::from(*now));
    }
    let tenacity = label(&pin, "tenacity");
    let split = TENACITY
        .iter()
        .find(|(old, _)| tenacity.as_deref() == Some(*old))
        .map(|(_, initiative)| ("normal", *initiative));
    let kept = Some(RELENTLESS).filter(|(label, _)| !is_migrated && tenacity.as_deref() == Some(*label));
    if let Some((label, initiative)) = split.or(kept) {
        pin.insert("tenacity".to_owned(), Value::from(label));
        // An initiative that is there already wins.
        if pin.get("initiative").is_none_or(Value::is_null) {
            pin.insert("initiative".to_owned(), Value::from(initiative));
        }
    }
    if pin == before { text.to_owned() } else { Value::Object(pin).to_string() }
}

/// What a row of another table says, if the library has a word for it.
pub(super) fn companion(row: &Row) -> Result<Option<Companion>, Skip> {
    match row.table() {
        "conversation_inbox" => message(row),
        "enrollment_requests" => enrolment(row),
        "permission_requests" => permission(row),
        "interaction_offers" => offer(row),
        // Receipts and artifacts stay beside the conversation as they are.
        _ => Ok(None),
    }
}

/// A message that was delivered is a prompt of the conversation already.
fn message(row: &Row) -> Result<Option<Companion>, Skip> {
    let body = row.required("body")?;
    if row.int("delivered")?.unwrap_or_default() != 0 || body.is_empty() {
        return Ok(None);
    }
    Ok(Some(Companion::Message { id: row.label("id"), body: body.to_owned() }))
}

fn enrolment(row: &Row) -> Result<Option<Companion>, Skip> {
    let resolved = row.int("resolved")?.unwrap_or_default() != 0;
    let outcome = match (resolved, row.text("resolved_by")?) {
        (false, _) => "not answered in newt".to_owned(),
        (true, Some(by)) => format!("resolved in newt: {by}"),
        (true, None) => "resolved in newt".to_owned(),
    };
    Ok(Some(Companion::Request {
        id: row.required("request_id")?.to_owned(),
        subject: "enrolment",
        detail: row.required("candidate_json")?.to_owned(),
        enrols: true,
        is_low: false,
        outcome,
    }))
}

fn permission(row: &Row) -> Result<Option<Companion>, Skip> {
    let verdict = row.text("verdict")?.map(|verdict| format!(": {verdict}"));
    let by = row.text("answered_by")?.map(|by| format!(", by {by}"));
    let outcome = match row.int("resolved")?.unwrap_or_default() != 0 || verdict.is_some() {
        true => format!("answered in newt{}{}", verdict.unwrap_or_default(), by.unwrap_or_default()),
        false => "not answered in newt".to_owned(),
    };
    Ok(Some(Companion::Request {
        id: row.required("request_id")?.to_owned(),
        subject: "permission",
        detail: row.required("requests_json")?.to_owned(),
        enrols: false,
        is_low: is_low(row.text("danger_json")?),
        outcome,
    }))
}

fn offer(row: &Row) -> Result<Option<Companion>, Skip> {
    let outcome = match row.text("outcome")? {
        Some(outcome) => format!("{outcome} in newt"),
        None => "not answered in newt".to_owned(),
    };
    Ok(Some(Companion::Request {
        id: row.required("instance_id")?.to_owned(),
        subject: "interaction",
        detail: row.required("instance_json")?.to_owned(),
        enrols: false,
        is_low: is_low(row.text("danger_tier")?),
        outcome,
    }))
}

/// Whatever does not say that it is low is high.
fn is_low(tier: Option<&str>) -> bool {
    tier.is_some_and(|tier| tier.trim_matches('"') == "low")
}

/// What belongs to a workspace.
pub(super) fn shared(row: &Row) -> Result<Option<Shared>, Skip> {
    Ok(Some(Shared::Roadmap {
        folder: row.word("folder").map(PathBuf::from),
        workspace: None,
        id: row.required("id")?.to_owned(),
        title: row.word("title"),
        text: row.required("tree")?.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::{companion, migrated_pin, of_conversation};
    use crate::companion::Companion;
    use crate::rows::Row;

    #[test]
    fn old_labels_of_a_pin_are_those_of_now() {
        assert_eq!(migrated_pin(r#"{"cognition":"pondering"}"#, true), r#"{"cognition":"rational"}"#);
        let split = migrated_pin(r#"{"tenacity":"insistent"}"#, true);
        assert_eq!(split, r#"{"tenacity":"normal","initiative":"decisive"}"#);
        let kept = migrated_pin(r#"{"tenacity":"relaxed","initiative":"eager"}"#, false);
        assert_eq!(kept, r#"{"tenacity":"normal","initiative":"eager"}"#);
        for same in [r#"{ "cognition": "zen" }"#, r#"{"tenacity":"relentless"}"#, "{", "[]", r#"{"cognition":7}"#] {
            assert_eq!(migrated_pin(same, true), same);
        }
    }

    #[test]
    fn a_label_that_is_old_and_of_now_is_split_once() {
        let pin = r#"{"tenacity":"relentless"}"#;
        assert_eq!(migrated_pin(pin, false), r#"{"tenacity":"relentless","initiative":"eager"}"#);
        assert_eq!(migrated_pin(pin, true), pin);
        let own = r#"{"tenacity":"relentless","initiative":"patient"}"#;
        assert_eq!(migrated_pin(own, false), own);
    }

    #[test]
    fn a_request_comes_with_what_became_of_it() {
        let row = Row::read(
            br#"{"table":"permission_requests","request_id":"r","requests_json":"{}","danger_json":"\"low\"",
            "verdict":"allow_once","answered_by":"web","resolved":1}"#,
        );
        let Ok(Some(Companion::Request { is_low, outcome, .. })) = companion(&row.unwrap()) else { panic!() };
        assert_eq!((is_low, outcome.as_str()), (true, "answered in newt: allow_once, by web"));
        let row = Row::read(br#"{"table":"enrollment_requests","request_id":"r","candidate_json":"{}","resolved":0}"#);
        let Ok(Some(Companion::Request { is_low, outcome, .. })) = companion(&row.unwrap()) else { panic!() };
        assert_eq!((is_low, outcome.as_str()), (false, "not answered in newt"));
    }

    #[test]
    fn a_delivered_message_waits_no_more() {
        let read = |delivered: &str| {
            let row = format!(r#"{{"table":"conversation_inbox","id":4,"body":"x","delivered":{delivered}}}"#);
            companion(&Row::read(row.as_bytes()).unwrap())
        };
        assert_eq!(read("1").unwrap(), None);
        assert!(matches!(read("0").unwrap(), Some(Companion::Message { .. })));
        assert_eq!(read("\"x\"").unwrap_err().reason, "row 4 of conversation_inbox: no whole number in `delivered`");
    }

    #[test]
    fn a_damaged_column_costs_itself() {
        let row = Row::read(
            br#"{"table":"conversations","id":"c","scratchpad":7,"plan":"{\"steps\":[]}","preference_pin":"{}"}"#,
        );
        let (companions, remarks) = of_conversation(&row.unwrap());
        assert_eq!(companions.len(), 1);
        assert_eq!(remarks, ["row c of conversations: no text in `scratchpad`"]);
    }
}
