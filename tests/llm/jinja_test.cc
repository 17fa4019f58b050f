// The interpreter of chat templates: against what transformers writes, and within its bounds.
#include "examples/llm/jinja.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "examples/llm/chat_writer.h"
#include "runtime/json.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using jinja::Template;
using ::testing::HasSubstr;

absl::StatusOr<jinja::Text> Render(const std::string& text, absl::Span<const Message> messages,
                                   const jinja::Heap::Limits& limits = {},
                                   const std::string& tools = "") {
  absl::StatusOr<Template> t = Template::Parse(text);
  if (!t.ok()) return t.status();
  Template::Inputs in;
  in.messages = messages;
  in.tools = tools;
  in.bos = "<BOS>";
  in.eos = "<EOS>";
  in.today.tm_year = 2025 - 1900;
  in.today.tm_mon = 1;
  in.today.tm_mday = 1;
  in.today.tm_wday = 6;
  return t->Render(in, limits);
}

const Message kHello[] = {{"user", "Hello"}};

std::string Written(const std::string& text) {
  const absl::StatusOr<jinja::Text> out = Render(text, kHello);
  return out.ok() ? out->bytes : absl::StrCat("error: ", std::string(out.status().message()));
}

struct Conversation {
  std::vector<Message> messages;
  std::string tools;
};

std::vector<Conversation> Conversations(const Json& all) {
  std::vector<Conversation> out;
  for (const JsonItem conversation : all.Items()) {
    out.emplace_back();
    if (const std::optional<Json> messages = conversation.value().is(Json::Type::kObject)
                                                 ? conversation.value().Find("messages")
                                                 : std::nullopt) {
      const absl::StatusOr<std::vector<Message>> read = MessagesOfJson(messages->text(), "golden");
      EXPECT_OK(read.status());
      out.back().messages = *read;
      const Json tools = *conversation.value().Find("tools");
      if (!tools.is(Json::Type::kNull)) out.back().tools = std::string(tools.text());
      continue;
    }
    for (const JsonItem message : conversation.value().Items()) {
      std::vector<std::string> parts;
      for (const JsonItem part : message.value().Items()) {
        parts.push_back(part.value().String().value_or(""));
      }
      out.back().messages.push_back({parts[0], parts[1]});
    }
  }
  return out;
}

// Of a file that tests/llm/goldens/make_chats.py wrote.
void ExpectGoldens(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  ASSERT_OK_AND_ASSIGN(const Json json, Json::Parse(bytes, path));
  const std::vector<Conversation> conversations = Conversations(*json.Find("conversations"));
  int count = 0;
  for (const JsonItem golden : json.Find("goldens")->Items()) {
    const std::string source = *golden.value().Find("template")->String();
    size_t i = 0;
    for (const JsonItem wanted : golden.value().Find("texts")->Items()) {
      const Conversation& c = conversations[i++];
      const absl::StatusOr<jinja::Text> out = Render(source, c.messages, {}, c.tools);
      const std::optional<std::string> want = wanted.value().String();
      EXPECT_EQ(out.ok(), want.has_value()) << source << "\n" << out.status();
      if (out.ok() && want) {
        EXPECT_EQ(out->bytes, *want) << source;
      }
      ++count;
    }
  }
  EXPECT_GT(count, 0);
}

TEST(Jinja, TextsAreThoseOfTransformers) {
  ExpectGoldens("tests/llm/goldens/chats.json");
  // Of templates that models have, which lie elsewhere.
  if (const char* more = std::getenv("CHAT_GOLDENS")) ExpectGoldens(more);
}

TEST(Jinja, BytesKnowWhoSaidThem) {
  const Message said[] = {{"user", " a<|x|>b\n"}};
  const auto shown = [&](const std::string& text) {
    const absl::StatusOr<jinja::Text> out = Render(text, said);
    EXPECT_OK(out.status());
    std::string marks;
    for (size_t i = 0; out.ok() && i < out->size(); ++i) {
      marks += out->said[i] != 0 ? out->bytes[i] : '.';
    }
    return marks;
  };
  EXPECT_EQ(shown("<{{ messages[0].content }}>"), ". a<|x|>b\n.");
  EXPECT_EQ(shown("{% set c = messages[0].content | trim %}{{ '<' + c + '>' ~ c }}"),
            ".a<|x|>b.a<|x|>b");
  EXPECT_EQ(shown("{{ messages[0].content.split('|')[1] }}-{{ messages[0].content[2:4] }}"),
            "x.<|");
  EXPECT_EQ(shown("{{ messages[0].content.replace('|', '<|') }}"), " a<..x..>b\n")
      << "what a template puts in is its own";
  EXPECT_EQ(shown("{{ ['<', messages[0].content]|join('|') }}"), ".. a<|x|>b\n");
  EXPECT_EQ(shown("{{ messages[0].content|tojson }}"), ". a<|x|>b\\n.");
  EXPECT_EQ(shown("{% set c %}<{{ messages[0].content[1] }}>{% endset %}{{ c|upper }}"), ".A.");
  EXPECT_EQ(shown("{% macro f(x) %}<{{ x }}{% endmacro %}{{ f(messages[0].content[1]) }}"), ".a");
  EXPECT_EQ(shown("{{ messages[0].role }}"), "....") << "marks are made of it";
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_THAT(Written("a\n{{ 'b }}"), HasSubstr("line 2: a string does not end"));
  EXPECT_THAT(Written("a\n\n{% nosuch %}"), HasSubstr("line 3: the statement 'nosuch'"));
  EXPECT_THAT(Written("{{ 1 }}\n{{ x.y }}"), HasSubstr("line 2: 'y' of what is undefined"));
  EXPECT_THAT(Written("{{ raise_exception('no ' + messages[0].role) }}"),
              HasSubstr("the template says: no user"));
  EXPECT_THAT(Written("{% include 'x' %}"), HasSubstr("'include' is not known"));
  EXPECT_THAT(Written("\xFF"), HasSubstr("byte 0 is no UTF-8"));
  EXPECT_THAT(Written("{{ 'x'.startswith((none,)) }}"), HasSubstr("wants a text"));
  EXPECT_EQ(Written("{{ 'x'.startswith(()) }}{{ 'x'.endswith(('a', 'x')) }}"), "FalseTrue");
  EXPECT_THAT(Written("{{ 'x'.index('y') }}"), HasSubstr("the text is not found"));
  EXPECT_EQ(Written("{{ 'xy'.index('y') }}"), "1");
}

TEST(Jinja, LoopsAreLeftFromWithin) {
  EXPECT_EQ(Written("{% for i in [1, 2] %}{% set x %}a{% break %}{% endset %}b{% endfor %}c"), "c");
  EXPECT_EQ(Written("{% for i in [1, 2] %}{{ i }}{% filter upper %}a{% if i == 1 %}{% continue %}"
                    "{% endif %}{% endfilter %}b{% endfor %}"),
            "12Ab");
}

// The texts are those of Jinja2 3.1, with transformers' own tojson.
TEST(Jinja, FiltersTakeTheArgumentsOfJinja2) {
  const std::pair<const char*, const char*> rows[] = {
      {"{{ 'x'|int(-1) }} {{ none|int(4) }} {{ '12a'|int(default=3) }} {{ 'x'|int }}", "-1 4 3 0"},
      {"{{ '0x1F'|int(0, 16) }} {{ '-0b11'|int(base=2) }} {{ 'z'|int(base=36) }}", "31 -3 35"},
      {"{{ ' +1_000 '|int }} {{ '1__0'|int(7) }} {{ '_1'|int(7) }} {{ '3.9'|int }}", "1000 7 7 3"},
      {"{{ 'x'|float(1.5) }} {{ ' 2.5 '|float(1) }} {{ []|float }}", "1.5 2.5 0.0"},
      {"{{ 2.5|round }} {{ 3.14159|round(2) }} {{ 7|round }} {{ 2.1|round(0, 'ceil') }}",
       "2.0 3.14 7 3.0"},
      {"{{ {'b': 1, 'a': [2]}|tojson(sort_keys=true) }}", R"({"a": [2], "b": 1})"},
      {"{{ {'b': 1, 'a': [2, 3]}|tojson(separators=(',', ':')) }}", R"({"b":1,"a":[2,3]})"},
      {"{{ [1]|tojson(indent='- ') }}{{ [1]|tojson(indent=0) }}", "[\n- 1\n][\n1\n]"},
      {"{{ [1, 2]|tojson(indent=1, separators=(', ', '=')) }}", "[\n 1, \n 2\n]"},
      {"{{ {1: 0, none: 0, true: 0, 1.5: 0}|tojson }}", R"({"1": 0, "null": 0, "1.5": 0})"},
      {"{{ dict({'a': 1}, b=2) }}{{ dict([('a', 1)], a=3) }}", "{'a': 1, 'b': 2}{'a': 3}"},
      {"{{ namespace({'a': 1}, a=2).a }}", "2"},
      {"{% set l = [{'n': 1, 'i': 0}, {'n': 1, 'i': 1}, {'n': 2, 'i': 2}] %}"
       "{{ l|sort(attribute='n', reverse=true)|map(attribute='i')|join }} "
       "{{ l|sort(attribute='n,i')|join('-', 'i') }} {{ (l|max(attribute='n')).i }} "
       "{{ l|unique(attribute='n')|list|length }} {{ l|sum(attribute='n') }} {{ [1.5]|sum(start=2) "
       "}}",
       "201 0-1-2 2 2 4 3.5"},
      {"{{ {'b': 1, 'a': 1}|dictsort(false, 'value', true)|map('first')|join }}", "ba"},
      {"{{ [[1, {'k': 'x'}], [2, {}]]|map(attribute='1.k', default='-')|join }}", "x-"},
      {"{{ [{}]|map(attribute='a.b', default='-')|join }}{{ [[1, 2]]|join(attribute='1') }}", "-2"},
      {"{{ ['b', 'A', 'a', 'B']|unique|join }} {{ ['b', 'A']|min }} {{ ['b', 'A', 'a']|max }}",
       "bA A b"},
      {"{{ ['b', 'A', 'a']|unique(true)|join }} {{ ['b', 'A', 'a']|max(case_sensitive=true) }}",
       "bAa b"},
      {"{{ nothing|first }}{{ nothing|last }}{{ {'k': 1}|first }}{{ {'k': 1, 'l': 2}|last }}",
       "kl"},
      {"{{ \"it's o'neil-x (y) [Z\"|title }} {{ \"it's x\".title() }}",
       "It's O'neil-X (Y) [Z It'S X"},
      {"{{ 'a\\nb\\r\\nc\\rd\\n\\n'.splitlines() }}", "['a', 'b', 'c', 'd', '']"},
      {"{{ 'a\\r\\nb'.splitlines(true) }}{{ ''.splitlines() }}", "['a\\r\\n', 'b'][]"},
      {"{% set a = [1] %}{% set b = a %}{{ a is sameas b }}{{ a is sameas [1] }}", "TrueFalse"},
      {"{{ 3 * 'ab' }}{{ nothing is sequence }}", "abababTrue"}};
  for (const auto& [text, want] : rows) EXPECT_EQ(Written(text), want) << text;
  EXPECT_THAT(Written("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}"),
              HasSubstr("'m' takes no argument 'b'"));
  EXPECT_THAT(Written("{{ '1'|int(base=1) }}"), HasSubstr("the base is 0, or 2 to 36"));
  EXPECT_THAT(Written("{{ dict([1]) }}"), HasSubstr("an integer has no elements"));
  EXPECT_THAT(Written("{{ dict([[1]]) }}"), HasSubstr("made of pairs"));
  EXPECT_THAT(Written("{{ 1|tojson(separators=[',']) }}"), HasSubstr("separators are two texts"));
}

TEST(Jinja, NothingIsUnbounded) {
  const std::string open(100'000, '('), close(100'000, ')');
  EXPECT_THAT(Written("{{ " + open + "1" + close + " }}"), HasSubstr("nests too deep"));
  EXPECT_THAT(Written("{{ " + std::string(100'000, '-') + "1 }}"), HasSubstr("nests too deep"));
  std::string deep = "1";
  for (int i = 0; i < 10'000; ++i) deep += "+1";
  EXPECT_THAT(Written("{{ " + deep + " }}"), HasSubstr("nests too deep"));
  std::string filters = "'a'";
  for (int i = 0; i < 10'000; ++i) filters += "|trim";
  EXPECT_THAT(Written("{{ " + filters + " }}"), HasSubstr("nests too deep"));
  std::string blocks;
  for (int i = 0; i < 10'000; ++i) blocks += "{% if true %}";
  EXPECT_THAT(Written(blocks), HasSubstr("nests too deep"));
  EXPECT_THAT(Written("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("calls nest too deep"));
  EXPECT_THAT(Written("{% set n = namespace(x=[]) %}{% for i in range(9999) %}"
                      "{% set n.x = [n.x, n.x] %}{% endfor %}"),
              HasSubstr("lists nest deeper"));
  EXPECT_THAT(Written("{% set n = namespace(x=[], y=[]) %}{% for i in range(60) %}"
                      "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}"
                      "{{ n.x == n.y }}"),
              HasSubstr("too many steps"));
  EXPECT_THAT(Written("{% set n = namespace(x='a') %}{% for i in range(99) %}"
                      "{% set n.x = n.x + n.x %}{% endfor %}"),
              HasSubstr("too much text"));
  EXPECT_THAT(Written("{{ 'a' * 1000000000000 }}"), HasSubstr("too m"));
  EXPECT_THAT(Written("{{ range(1000000000000) }}"), HasSubstr("a range is"));
  EXPECT_THAT(Written("{% for a in range(90000) %}{% for b in range(90000) %}"
                      "{% endfor %}{% endfor %}"),
              HasSubstr("too m"));
  EXPECT_THAT(Written("{% set n = namespace() %}{% set n.n = n %}{{ n == n }}{{ n.n.n == n }}"),
              "TrueTrue");
  EXPECT_THAT(Written("{% set n = namespace() %}{% set n.n = [n] %}{{ n.n }}"),
              HasSubstr("cannot be written"));
  EXPECT_THAT(Written("{% set n = namespace(x=1, y=0) %}{% for i in range(100000) %}"
                      "{% for y in [0, n.x] %}{% set n.y = loop %}{% break %}{% endfor %}"
                      "{% set n.x = n.y %}{% if i == 50000 %}{% break %}{% endif %}{% endfor %}"
                      "{{ n.x }}"),
              HasSubstr("a namespace cannot be written"))
      << "a loop may hold itself";
  std::string many;
  for (int i = 0; i < 30'000; ++i) many += "'map',";
  EXPECT_THAT(Written("{{ 'a'|map(" + many + ") }}"), HasSubstr("too many arguments"));
  many.clear();
  for (int i = 0; i < 101; ++i) absl::StrAppend(&many, "a", i, ",");
  EXPECT_THAT(Written("{% macro f(" + many + ") %}{% endmacro %}"), HasSubstr("too many param"));
  EXPECT_THAT(Written("{{ " + std::string(10'000, 'a') + " }}"), HasSubstr("name is too long"));
  EXPECT_THAT(Written("{{ x." + std::string(10'000, 'a') + " }}"), HasSubstr("name is too long"));
  EXPECT_THAT(Written("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(Written("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("too large"));
  std::string chain = "{% if x %}";
  for (int i = 0; i < 10'000; ++i) chain += "{% elif x %}";
  EXPECT_EQ(Written(chain + "{% else %}a{% endif %}"), "a") << "a chain is not deep";
  EXPECT_THAT(Render("{% for i in range(100) %}{% endfor %}", kHello, {.steps = 50}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "too many steps"));
}

// What takes long takes steps.
TEST(Jinja, StepsBoundTimeSlow) {
  const std::string texts =
      "{% set n = namespace(s='a') %}{% for i in range(20) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
      "{% set t = n.s ~ '' %}{% set half = n.s[:500000] %}";
  for (const char* search :
       {"half ~ 'b' in n.s", "n.s.find(half ~ 'b')", "n.s.rfind('b' ~ half)",
        "n.s.index(half ~ 'b')", "n.s.count(half ~ 'b')", "n.s.split(half ~ 'b')",
        "n.s.rsplit('b' ~ half)", "n.s.replace(half ~ 'b', '')", "n.s.strip(half ~ 'b')"}) {
    EXPECT_THAT(Written(texts + "{{ " + search + " }}"), HasSubstr("too many steps")) << search;
  }
  for (const char* pass :
       {"n.s == t", "n.s < t", "n.s|length", "n.s[0]", "n.s[:1]", "n.s|first", "'b' in n.s",
        "n.s.find('b')", "n.s is lower", "n.s.isdigit()", "n.s|int", "n.s|float", "n.s.strip('a')",
        "n.s.startswith(t)", "n.s.startswith((t,))", "n.s.removeprefix(t)", "{n.s: 1}[t]"}) {
    EXPECT_THAT(Written(texts + "{% for i in range(1000) %}{% set x = " + pass + " %}{% endfor %}"),
                HasSubstr("too many steps"))
        << pass;
  }
  std::string names = "{% set n = namespace() %}";
  for (int i = 0; i < 5'000; ++i) absl::StrAppend(&names, "{% set n.a", i, " = 1 %}");
  EXPECT_THAT(Written(names + "{% for i in range(2000) %}{{ n.b }}{% endfor %}"),
              HasSubstr("too many steps"));
  std::string variables;
  for (int i = 0; i < 60'000; ++i) absl::StrAppend(&variables, "{% set a", i, " = ", i, " %}");
  EXPECT_EQ(Written(variables + "{{ a0 }} {{ a59999 }}"), "0 59999") << "these are soon found";
}

TEST(Jinja, BytesBoundWhatIsWritten) {
  jinja::Heap heap({.steps = 10'000, .bytes = 10'000});
  jinja::Value v = heap.Make("\x01");
  for (int i = 0; i < 40; ++i) v = heap.Make(jinja::List{v});
  EXPECT_OK(heap.status());
  jinja::JsonForm form;
  form.indent = std::string(16, ' ');
  EXPECT_LE(heap.Json(v, form).size(), 5'000u);
  EXPECT_THAT(heap.status(), StatusIs(absl::StatusCode::kInvalidArgument, "too much text"));
}

TEST(Jinja, LongConversationsAreWithinBounds) {
  const std::string text = " " + std::string(99'990, 'a') + "</t>é\n\x01";
  const std::vector<Message> said(21, {"user", text});
  const absl::StatusOr<jinja::Text> out = Render(
      "{% for m in messages %}{% if m.content[0] == ' ' and m.content[-3] == 'é' %}"
      "{% if m.content is string and m.content == messages[-1].content and '</t>' in m.content %}"
      "{% if m.content.startswith('<t>') or m.content|length < 9 %}wrong{% endif %}"
      "{{ m.content.split('</t>')[0]|trim ~ m.content[1:-2] ~ m.content[::-1][0] }}{% endif %}"
      "{{ m.content.replace('</t>', '') + m.content|tojson + m.content.strip('\n') }}"
      "{% endif %}{% endfor %}",
      said);
  ASSERT_OK(out.status());
  EXPECT_GT(out->size(), 21u * 5 * 99'990);
  EXPECT_EQ(out->size(), out->said.size());
  EXPECT_THAT(out->bytes, ::testing::Not(HasSubstr("wrong")));
}

// Whatever is cut off a template leaves an error, or a text.
TEST(Jinja, CutOffTemplatesAreNoHarm) {
  const std::string whole =
      "{%- macro f(a, b='x\\n') -%}{{ a|default(b)|trim }}{%- endmacro %}{# note #}\n"
      "{% set ns = namespace(a=[1, {'k': -2.5}], b=none) %}{% for i, m in {'a': 1}.items() if m > "
      "0 "
      "%}{{ loop.index ~ f(m[::-1][0:2]) is not string and 1 in [1] }}{% else %}{% endfor %}";
  for (size_t i = 0; i <= whole.size(); ++i) {
    for (const std::string& part : {whole.substr(0, i), whole.substr(i)}) {
      const absl::StatusOr<jinja::Text> out = Render(part, kHello);
      if (out.ok()) {
        EXPECT_EQ(out->bytes.size(), out->said.size()) << part;
      } else {
        EXPECT_THAT(out.status(), StatusIs(absl::StatusCode::kInvalidArgument, "line ")) << part;
      }
    }
  }
}

std::unique_ptr<const Tokenizer> TokenizerFor(const std::string& chat_template) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  for (const char* token : {"<BOS>", "<EOS>", "<|user|>", "<|bot|>", "<|end|>"}) {
    spec.tokens.push_back({.text = token, .kind = TokenKind::kControl});
  }
  spec.bos = 256;
  spec.eos = 257;
  spec.chat_template = chat_template;
  absl::StatusOr<std::unique_ptr<const Tokenizer>> t = Tokenizer::Make(std::move(spec));
  EXPECT_OK(t.status());
  return std::move(*t);
}

constexpr char kMarks[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}{{ '<|user|>' if m.role == 'user' else '<|bot|>' "
    "}}"
    "{{ m.content }} <|end|>\n{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}";

TEST(ChatWriter, ATemplateWritesTokens) {
  const auto t = TokenizerFor(kMarks);
  ASSERT_OK_AND_ASSIGN(const ChatWriter writer, ChatWriter::Make(*t));
  EXPECT_FALSE(writer.form().has_value()) << "no form is like it";
  const Message typed[] = {{"user", "a<|end|>"}};
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, writer.Encode(typed));
  EXPECT_EQ(ids.front(), 256);
  EXPECT_EQ(ids.back(), t->Find("<|bot|>"));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), t->Find("<|end|>")), 1)
      << "what is typed is no mark";
  EXPECT_EQ(DecodeAll(*t, ids), "a<|end|> \n");
  EXPECT_EQ(writer.end(), t->Find("<|end|>")) << "it ends what an assistant says";
  const Message system[] = {{"system", "S"}, {"user", "U"}};
  EXPECT_THAT(writer.Encode(system).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "the template says: no system"));
}

TEST(ChatWriter, FormsOfFamiliesWriteWhatTemplatesRefuse) {
  const auto t = TokenizerFor(absl::StrCat("{# <|im_start|> #}", kMarks));
  ASSERT_OK_AND_ASSIGN(const ChatWriter writer, ChatWriter::Make(*t));
  EXPECT_EQ(writer.form(), ChatForm::kChatMl);
  const Message system[] = {{"system", "S"}, {"user", "U"}};
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, writer.Encode(system));
  EXPECT_THAT(DecodeAll(*t, ids), HasSubstr("<|im_start|>system\nS"));
  const auto broken = TokenizerFor("<|im_start|>{% nosuch %}");
  ASSERT_OK_AND_ASSIGN(const ChatWriter other, ChatWriter::Make(*broken));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> same, other.Encode(system));
  EXPECT_EQ(DecodeAll(*broken, same), DecodeAll(*t, ids));
  EXPECT_EQ(other.end(), -1);
  // A file's messages too, where they are as plain.
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Message> plain,
      MessagesOfJson(R"([{"role": "system", "content": "S"}, {"content": "U", "role": "user"}])",
                     "m.json"));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> of_file, other.Encode(plain));
  EXPECT_EQ(of_file, same);
  for (const char* more : {R"([{"role": "user", "content": "U", "name": "n"}])",
                           R"([{"role": "tool", "content": "U"}])"}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Message> messages, MessagesOfJson(more, "m.json"));
    EXPECT_THAT(other.Encode(messages).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "it cannot be run (line 1"));
  }
}

TEST(ChatWriter, ContentsInParts) {
  const auto t = TokenizerFor(
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}<{{ p.text }}>"
      "{% endif %}{% endfor %}{% endfor %}");
  ASSERT_OK_AND_ASSIGN(const ChatWriter writer, ChatWriter::Make(*t));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, writer.Encode(kHello));
  EXPECT_EQ(DecodeAll(*t, ids), "<Hello>");
  ASSERT_OK_AND_ASSIGN(const std::vector<Message> read,
                       MessagesOfJson(R"([{"role": "user", "content": "a", "name": "n"},
                         {"role": "user", "content": [{"type": "text", "text": "b"}]},
                         {"role": "user", "content": "c"}])",
                                      "m.json"));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> of_file, writer.Encode(read));
  EXPECT_EQ(DecodeAll(*t, of_file), "<a><b><c>");
}

TEST(ChatWriter, WhatCannotBeUsed) {
  const auto status = [](const std::string& chat_template) {
    return ChatWriter::Make(*TokenizerFor(chat_template)).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(status(""), StatusIs(invalid, "no chat template"));
  EXPECT_THAT(status("{{ x"), StatusIs(invalid, "cannot be used: line 1: {{ does not end"));
  EXPECT_THAT(status("{{ bos_token }}"), StatusIs(invalid, "does not write what a user says"));
}

}  // namespace
}  // namespace tessera::llm
