//! A corpus in many languages: items, queries, and what each query finds.

use serde::Deserialize;

use crate::search::Field;
use crate::view::{Part, View};
use crate::{Kind, NewItem, Role};

/// Items and the queries over them, as `languages.toml` has them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Languages {
    /// The items, each under a name of its own.
    #[serde(rename = "item")]
    pub items: Vec<CorpusItem>,
    /// The queries.
    #[serde(rename = "query")]
    pub queries: Vec<CorpusQuery>,
}

/// An item of the corpus: it has one of these texts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusItem {
    /// What queries call it.
    pub id: String,
    /// The language that it is in, as a tag of two letters.
    pub language: String,
    /// What somebody said.
    #[serde(default)]
    pub said: Option<String>,
    /// What a model thought.
    #[serde(default)]
    pub reasoning: Option<String>,
    /// The name of a tool, and the arguments that it was called with.
    #[serde(default)]
    pub call: Option<[String; 2]>,
    /// What a tool gave back.
    #[serde(default)]
    pub result: Option<String>,
}

/// A query and what it finds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusQuery {
    /// The query as a person types it.
    pub text: String,
    /// The ids of all items that it finds.
    pub finds: Vec<String>,
}

impl Languages {
    /// The corpus.
    ///
    /// # Panics
    /// Never: the text is a part of the program, and a test reads it.
    #[expect(clippy::expect_used, reason = "a clause that panics is a clause that fails")]
    pub fn corpus() -> Self {
        toml::from_str(include_str!("languages.toml")).expect("the corpus is what is declared above")
    }
}

impl CorpusItem {
    /// The texts of the item as search reads them.
    pub fn fields(&self) -> Vec<(Field, &str)> {
        let mut fields = Vec::new();
        fields.extend(self.said.iter().map(|text| (Field::Said, text.as_str())));
        fields.extend(self.reasoning.iter().map(|text| (Field::Reasoning, text.as_str())));
        fields.extend(self.call.iter().flatten().map(|text| (Field::Call, text.as_str())));
        fields.extend(self.result.iter().map(|text| (Field::Result, text.as_str())));
        fields
    }

    /// The item as it is appended to a thread.
    pub fn to_append(&self) -> NewItem {
        let call_id = || self.id.clone();
        let (kind, role, part) = match self {
            Self { reasoning: Some(text), .. } => {
                (Kind::Reasoning, Role::Assistant, Part::Reasoning { text: text.clone() })
            }
            Self { call: Some([name, arguments]), .. } => {
                let part = Part::ToolCall { call_id: call_id(), name: name.clone(), arguments: arguments.clone() };
                (Kind::ToolCall, Role::Assistant, part)
            }
            Self { result: Some(output), .. } => {
                let part = Part::ToolResult { call_id: call_id(), output: output.clone(), is_error: false };
                (Kind::ToolResult, Role::Tool, part)
            }
            Self { said, .. } => (Kind::Message, Role::User, Part::Text { text: said.clone().unwrap_or_default() }),
        };
        NewItem::from_view(kind, &View { role: Some(role), parts: vec![part], ..View::default() })
    }
}
