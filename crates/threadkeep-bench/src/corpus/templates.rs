//! What code, calls and output look like. A place is a `%` and a letter: `s` an identifier in snake case, `c` in camel case,
//! `P` in Pascal case, `w` a word, `S` a sentence, `n` and `N` a small and a large number, `h`, `H` and `u` a short hash, a
//! long one and a UUID, `p` a path, `t` a time of day, `e` a line of code inside a string of JSON.

/// What a tool prints, line by line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// Lines of the conversation's programming language.
    Code,
    /// The same with their numbers, as a file is read.
    Numbered,
    /// The same as a change of a file.
    Diff,
    /// Lines of one of the logs.
    Log,
    /// One line.
    Says(&'static str),
    /// Lines of these templates.
    Lines(&'static [&'static str]),
}

pub(super) const TITLES: &[&str] =
    &["Fix %w %w in %s", "Add %s to %P", "Why does %s %w the %w?", "Refactor %P and %P", "%w %w %w", "Review of %p"];

/// Lines of Rust, Python, TypeScript, Go and Java.
pub(super) const CODE: &[&[&str]] = &[
    &[
        "pub fn %s(&self, %s: &%P) -> Result<%P> {",
        "    let %s = self.%s.%s(%s)?;",
        "    let mut %s: Vec<%P> = Vec::with_capacity(%n);",
        "        .map(|%s| %s.%s())",
        "    if %s.is_empty() {",
        "        return Err(Error::%P { %s, %s: \"%w %w\" });",
        "    }",
        "}",
        "",
        "/// %S",
        "    // %S",
        "use crate::%s::{%P, %P};",
        "impl %P for %P {",
        "    #[test]",
        "    assert_eq!(%s.%s(), %n);",
        "        Some(%s) => %s.%s(&%s),",
    ],
    &[
        "def %s(self, %s: %P, %s=None) -> %P:",
        "    %s = self.%s(%s, %s=%n)",
        "    if not %s:",
        "        raise %P(f\"%w %w: {%s}\")",
        "    for %s in %s.%s():",
        "        yield %s[\"%s\"]",
        "",
        "from %s.%s import %P, %s",
        "class %P(%P):",
        "    # %S",
        "    return %s",
        "    with %s.%s() as %s:",
        "@pytest.mark.%s",
        "    assert %s == %n",
    ],
    &[
        "export async function %c(%c: %P, %c?: string): Promise<%P> {",
        "  const %c = await this.%c.%c(%c);",
        "  const { %c, %c } = use%P();",
        "  if (!%c) {",
        "    throw new %P(`%w %w: ${%c}`);",
        "  }",
        "});",
        "",
        "import { %P, %c } from './%s';",
        "  // %S",
        "  return %c.map((%c) => %c.%c).filter(Boolean);",
        "interface %P extends %P {",
        "  %c: %P | undefined;",
        "it('%w %w %w', async () => {",
        "  expect(%c.%c).toBe(%n);",
        "    <%P %c={%c} onClick={() => %c(%c)} />",
    ],
    &[
        "func (%c *%P) %P(ctx context.Context, %c %P) (*%P, error) {",
        "\t%c, err := %c.%P(ctx, %c)",
        "\tif err != nil {",
        "\t\treturn nil, fmt.Errorf(\"%w %w: %%w\", err)",
        "\t}",
        "}",
        "",
        "type %P struct {",
        "\t%P map[string]%P `json:\"%s\"`",
        "\t// %S",
        "\tfor _, %c := range %c.%P {",
        "\tdefer %c.Close()",
    ],
    &[
        "public %P %c(final %P %c) throws %P {",
        "    private final Map<String, %P> %c = new HashMap<>();",
        "    return %c.%c(%c).stream().map(%P::%c).collect(toList());",
        "    if (%c == null) {",
        "        throw new %P(\"%w %w\");",
        "    }",
        "}",
        "",
        "import com.example.%s.%P;",
        "    /** %S */",
        "    @Override",
        "    assertThat(%c.%c()).isEqualTo(%n);",
    ],
];

/// Lines of what runs, one kind each.
pub(super) const LOGS: &[&[&str]] = &[
    &[
        "2026-03-14T%tZ  INFO %s::%s: %w %w %s=%N",
        "2026-03-14T%tZ DEBUG %s::%s: %w %s=%h %w",
        "2026-03-14T%tZ  WARN %s::%s: retry %n of %n, %w %w",
        "2026-03-14T%tZ ERROR %s::%s: %P: %w %w (request %u)",
    ],
    &["[%t] %w %s took %n ms", "[%t] GET /api/%s/%N 200 %n", "[%t] POST /api/%s 500 %n %u", "[%t] worker %n: %w %w %w"],
    &[
        "Traceback (most recent call last):",
        "  File \"/home/user/%s/%p\", line %n, in %s",
        "    %s = self.%s(%s)",
        "%P: %w %w %s",
    ],
    &["    at %c (/home/user/%s/%p:%n:%n)", "    at async %P.%c (/home/user/%s/%p:%n:%n)", "%P: %w %w of undefined"],
    &[
        "thread '%s::%s' panicked at %p:%n:%n:",
        "  %n: %s::%s::%s",
        "             at /home/user/%p:%n",
        "called `Option::unwrap()` on a `None` value",
    ],
];

/// Tools and their arguments.
pub(super) const CALLS: &[(&str, &str)] = &[
    ("shell", r#"{"command":["bash","-lc","cargo test -p %s %s::%s"],"timeout_ms":%N,"workdir":"/home/user/%s"}"#),
    ("shell", r#"{"command":["bash","-lc","rg -n %s %p | head -%n"],"workdir":"/home/user/%s"}"#),
    ("shell", r#"{"command":["bash","-lc","git -C /home/user/%s log --oneline -%n && git diff %h -- %p"]}"#),
    ("shell", r#"{"command":["bash","-lc","sed -n '%n,%np' %p"]}"#),
    ("read_file", r#"{"path":"/home/user/%s/%p","offset":%n,"limit":%n}"#),
    ("read_file", r#"{"path":"/home/user/%s/%p"}"#),
    ("edit_file", r#"{"path":"/home/user/%s/%p","old_string":"%e\n%e\n%e","new_string":"%e\n%e\n%e\n%e"}"#),
    ("edit_file", r#"{"path":"/home/user/%s/%p","old_string":"%e","new_string":"%e\n%e"}"#),
    ("write_file", r#"{"path":"/home/user/%s/%p","content":"%e\n%e\n%e\n%e\n%e\n%e\n%e\n%e\n%e\n%e\n%e\n%e"}"#),
    ("grep", r#"{"pattern":"%s","path":"%p","output_mode":"content"}"#),
    ("web_search", r#"{"query":"%w %w %s %w"}"#),
    ("update_plan", r#"{"plan":[{"step":"%S","status":"completed"},{"step":"%S","status":"in_progress"}]}"#),
];

/// What tools print.
pub(super) const RESULTS: &[Form] = &[
    Form::Numbered,
    Form::Numbered,
    Form::Code,
    Form::Diff,
    Form::Log,
    Form::Log,
    Form::Lines(&["test %s::%s ... ok", "test %s::%s ... ok", "test %s::%s::%s ... ok", "test %s::%s ... FAILED"]),
    Form::Lines(&["%p:%n:    let %s = %s.%s(%s);", "%p:%n:use %s::%P;", "%p:%n:%s(%s, %n)"]),
    Form::Lines(&["-rw-r--r-- 1 user user %N Mar %n %t %s.rs", "drwxr-xr-x 2 user user 4096 Mar %n %t %s"]),
    Form::Lines(&["%h %w %w %s %w", "%h Merge branch '%s'", "%h %S"]),
    Form::Lines(&["{\"id\":\"%u\",\"%s\":%N,\"%c\":\"%w %w\",\"digest\":\"%H\"},"]),
    Form::Lines(&[
        "\u{1b}[32m   Compiling\u{1b}[0m %s v0.%n.%n",
        "warning: unused variable: `%s`",
        "   --> %p:%n:%n",
        "error[E0%n]: %w %w `%P`",
    ]),
    Form::Says("The file /home/user/%s/%p has been updated."),
    Form::Lines(&["%S"]),
];
