// What the interpreter of chat templates knows of Jinja2 and Python beyond what most templates use.
// The texts are those of Jinja2 3.1 within transformers.
#include "examples/llm/chat.h"
#include "examples/llm/jinja.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using jinja::Template;
using ::testing::HasSubstr;

std::string Written(const std::string& text, const std::string& tools = "") {
  absl::StatusOr<Template> t = Template::Parse(text);
  if (!t.ok()) return absl::StrCat("error: ", std::string(t.status().message()));
  const Message hello[] = {{"user", "<U>"}};
  Template::Inputs in;
  in.messages = hello;
  in.tools = tools;
  const absl::StatusOr<jinja::Text> out = t->Render(in);
  return out.ok() ? out->bytes : absl::StrCat("error: ", std::string(out.status().message()));
}

void ExpectRows(std::initializer_list<std::pair<const char*, const char*>> rows) {
  for (const auto& [text, want] : rows) EXPECT_EQ(Written(text), want) << text;
}

TEST(JinjaLanguage, StatementsOfJinja2) {
  ExpectRows({
      {"{% raw %}{{ x }}{# c #}{% if %}{% endraw %}{# d #}", "{{ x }}{# c #}{% if %}"},
      {"a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb", "a\n\n {{ x }}\nb"},
      {"a {%- raw -%} \n {{ x }} {%- endraw -%} \n b", "a{{ x }}b"},
      {"x{% raw %}\n{% endraw %}\ny", "x\ny"},
      {"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "211"},
      {"{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}", "1"},
      {"{% macro m(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call m(1) %}hi{% endcall %}",
       "<hi1>"},
      {"{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(a, b=5) m() %}{{ a }}-{{ b }}{% "
       "endcall %}",
       "1-5"},
      {"{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "12"},
      {"{% macro f() %}{% macro g() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ g() }}{% endmacro "
       "%}{{ f() }}",
       "3"},
      {"{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}", "1"},
      {"{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}",
       "1(2, 3){'x': 4}"},
      {"{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1], **{'b': 3}) }}", "13"},
      {"{% for x in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
      {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue"},
      {"{% for x in [{'c': [{'c': []}]}, {'c': []}] recursive %}({{ loop.depth }}{{ loop.depth0 "
       "}}{{ loop(x.c) }}){% endfor %}",
       "(10(21))(10)"},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% set (a, b), c = (1, 2), 3 %}{{ a }}{{ b }}{{ c }}", "123"},
      {"{% set n = namespace() %}{% set n.a, n.b = 1, 2 %}{{ n.a }}{{ n.b }}", "12"},
      {"{% for x in 1, 2, 3 if x > 1 %}{{ x }}{% endfor %}", "23"},
      {"{% block b %}x{% endblock b %}", "x"},
  });
}

TEST(JinjaLanguage, ValuesOfPython) {
  ExpectRows({
      {"{{ (1, 2) }}{{ (1,) }}{{ () }}{{ (1) }}", "(1, 2)(1,)()1"},
      {"{{ {'a': 1}.items()|list }}{{ {'b': 1, 'a': 2}|dictsort }}",
       "[('a', 1)][('a', 2), ('b', 1)]"},
      {"{{ (1, 2) + (3,) }}{{ (1, 2)[0:1] }}{{ (1, 2) == [1, 2] }}{{ 2 * (1,) }}{{ [1] * 3 }}",
       "(1, 2, 3)(1,)False(1, 1)[1, 1, 1]"},
      {"{{ (1, 2)|tojson }}{{ [1, 2].index(2) }}{{ [1, 1].count(1) }}", "[1, 2]12"},
      {"{{ ['\\u200b\\u2028é😀\\x7f\\x85\\ue000'] }}", "['\\u200b\\u2028é😀\\x7f\\x85\\ue000']"},
      {"{{ 0x1F + 0b11 + 0o17 }} {{ 2 ** -1 }}", "49 0.5"},
      {"{{ 'x'|pprint }}{{ 'trim' is filter }}{{ 'x' is filter }}", "'x'TrueFalse"},
      {"{% for g, items in [{'a': 'x', 'b': 2}, {'a': 'y', 'b': 3}, {'a': 'X', 'b': "
       "4}]|groupby('a') %}{{ g }}:{{ items|map(attribute='b')|list }}{% endfor %}",
       "x:[2, 4]y:[3]"},
      {"{% for g in [{'a': 1}, {}]|groupby('a', default=0) %}{{ g.grouper }}{{ g.list }}{% endfor "
       "%}",
       "0[{}]1[{'a': 1}]"},
      {"{{ [1, 2, 3, 4, 5]|batch(2)|list }}{{ [1, 2, 3, 4, 5]|batch(3, 'x')|list }}",
       "[[1, 2], [3, 4], [5]][[1, 2, 3], [4, 5, 'x']]"},
      {"{{ [1, 2, 3, 4, 5]|slice(3)|list }}{{ [1, 2, 3]|slice(2, 'x')|list }}",
       "[[1, 2], [3, 4], [5]][[1, 2], [3, 'x']]"},
  });
}

TEST(JinjaLanguage, FormsOfPython) {
  ExpectRows({
      {"{{ '%s %5d|%-5s|%05.1f|%+d|%x|%#X|%r|%c|%%' % ('a', 42, 'é', 2.25, 7, 255, 255, 'q', 65) "
       "}}",
       "a    42|é    |002.2|+7|ff|0XFF|'q'|A|%"},
      {"{{ '%(a)s %(b).3d' % {'a': 1, 'b': 2} }} {{ '%*d %.*f' % (5, 3, 2, 3.14159) }} {{ '%s' % "
       "[1, 2] }}",
       "1 002     3 3.14 [1, 2]"},
      {"{{ '%s-%s'|format(1, 'b') }} {{ '%(x)s'|format(x=3) }}", "1-b 3"},
      {"{{ '{:>5}|{:*^9}|{:<4}|{:.2}|{!r}'.format('a', 'é', 'b', 'xyz', 'q') }}",
       "    a|****é****|b   |xy|'q'"},
      {"{{ '{:05}|{:+}|{: }|{:,}|{:_x}|{:#010x}|{:b}'.format(-42, 1, 2, 1234567, 99999, 255, 5) }}",
       "-0042|+1| 2|1,234,567|1_869f|0x000000ff|101"},
      {"{{ '{:.2f}|{:10.3e}|{:g}|{:.3}|{:.1%}|{:08.2f}'.format(3.14159, 31415.9, 1e20, 100.0, "
       "0.256, -2.5) }}",
       "3.14| 3.142e+04|1e+20|1e+02|25.6%|-0002.50"},
      {"{{ '{a[k]} {b[0]} {0} {c:{w}}|'.format(1, a={'k': 5}, b=[7], c='x', w=3) }}", "5 7 1 x  |"},
      {"{{ 'abc'.center(8, '-') }}{{ 'abc'|center(8) }}|{{ '-5'.zfill(4) }}{{ 'a'.rjust(3) }}{{ "
       "'a'.ljust(3, '.') }}",
       "--abc---  abc   |-005  aa.."},
  });
}

TEST(JinjaLanguage, TextsOfPython) {
  ExpectRows({
      {"{{ ' a  b c '.split(none, 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ ' a b '.rsplit() }}",
       "['a', 'b c '][' a  b', 'c']['a', 'b']"},
      {"{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'a'.partition('-') }}{{ "
       "'a'.rpartition('-') }}",
       "('a', '-', 'b-c')('a-b', '-', 'c')('a', '', '')('', '', 'a')"},
      {"{{ 'xyxyx'.find('x', 1) }}{{ 'xyxyx'.rfind('x', 0, 4) }}{{ 'xyxyx'.count('x', 1) }}{{ "
       "'ab'.find('', 9) }}{{ 'é1'.startswith('1', 1) }}",
       "222-1True"},
      {"{{ 'abc'.replace('', '-') }}{{ 'é1'.replace('', '.', 2) }}{{ 'a\\tb'.expandtabs(4) }}{{ "
       "'aB'.swapcase() }}",
       "-a-b-c-.é.1a   bAb"},
      {"{{ 'é'.isalpha() }}{{ '²'.isdigit() }}{{ '½'.isnumeric() }}{{ '1'.isdecimal() }}{{ "
       "'a1'.isalnum() }}{{ ' '.isspace() }}{{ ''.isascii() }}{{ 'aB'.islower() }}{{ "
       "'AB'.isupper() }}",
       "TrueTrueTrueTrueTrueTrueTrueFalseTrue"},
      {"{{ 'hello world foo'|truncate(9) }}|{{ 'hello world foo'|truncate(8, true, '', 0) }}|{{ "
       "'hello'|truncate(5) }}",
       "hello...|hello wo|hello"},
      {"{{ 'a b, c_d'|wordcount }}{{ '<a & \"b\">'|e }}{{ 'a é/?'|urlencode }}",
       "3&lt;a &amp; &#34;b&#34;&gt;a%20%C3%A9/%3F"},
  });
}

TEST(JinjaLanguage, LettersHaveCases) {
  ExpectRows(
      {{"{{ 'ÀÉß'.lower() }} {{ 'àéßﬁ'|upper }} {{ 'ßa éA'.title() }} {{ 'ǆA'.capitalize() }}",
        "àéß ÀÉSSFI Ssa Éa ǅa"},
       {"{{ 'aÉ'.swapcase() }}{{ 'ÉA' is upper }}{{ 'éß' is lower }}{{ 'ǅ'.isupper() }}"
        "{{ 'Ⅷ'.isupper() }}{{ 'ªº'.islower() }}",
        "AéTrueTrueFalseTrueTrue"}});
}

TEST(JinjaLanguage, WhatIsWrongSaysSo) {
  const std::pair<const char*, const char*> rows[] = {
      {"{% raw %}{% raw %}", "{% raw %} does not end"},
      {"{% with a %}{% endwith %}", "wants ="},
      {"{% call 1 %}{% endcall %}", "wants a call"},
      {"{% set true = 1 %}", "'true' cannot be set"},
      {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "where it is recursive"},
      {"{% for x in [[]] recursive %}{{ loop(loop) }}{% endfor %}", "a namespace has no elements"},
      {"{% set n = namespace() %}{{ n.cycle(1) }}", "no such method"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "'f' takes 1 arguments"},
      {"{{ dict(**[1]) }}", "** of a list"},
      {"{{ [1].append(2) }}", "a list has no method 'append'"},
      {"{{ [1].index(3) }}", "the value is not found"},
      {"{{ 0xg }}", "a number is not known"},
      {"{{ 0 ** -1 }}", "a division by 0"},
      {"{{ '%s %s' % 1 }}", "wants more values"},
      {"{{ '%s' % (1, 2) }}", "wants fewer values"},
      {"{{ '%(c)s' % {} }}", "there is no 'c'"},
      {"{{ '%d' % 'x' }}", "%d is not for a text"},
      {"{{ '%q' % 1 }}", "%q is not known"},
      {"{{ '%' % 1 }}", "ends too soon"},
      {"{{ '%99999d' % 1 }}", "too large"},
      {"{{ '{:+}'.format('x') }}", "'+' is not for a text"},
      {"{{ '{:.3}'.format(1) }}", "'.3' is not for an integer"},
      {"{{ '{:z}'.format(1) }}", "'z' is not known"},
      {"{{ '{} {1}'.format(1, 2) }}", "with and without a place"},
      {"{{ '{:{:{}}}'.format(1, 2, 3) }}", "fields nest too deep"},
      {"{{ 'a'|truncate(1) }}", "the end is longer"},
      {"{{ 'a'.center(99999999) }}", "a width of more than"},
      {"{{ 'a'.rjust(3, 'xy') }}", "with one character"},
      {"{{ [1]|batch(0) }}", "batch wants a length"},
      {"{{ [1]|slice(99999999) }}", "a number of parts"},
      {"{{ {}|urlencode }}", "urlencode of a dictionary"},
      {"{{ [1]|batch(2305843009213693953, 0) }}", "batch wants a length"},
      {"{{ '%d' % ('nan'|float) }}", "%d is not for a float"},
      {"{{ '%*d' % (-9223372036854775807 - 1, 1) }}", "too large"},
      {"{{ é }}", "'é' is no part of an expression"}};
  for (const auto& [text, want] : rows) EXPECT_THAT(Written(text), HasSubstr(want)) << text;
}

// What is filled in stays what was said.
TEST(JinjaLanguage, BytesKnowWhoSaidThem) {
  const Message said[] = {{"user", "<x>"}};
  for (const char* text :
       {"{{ '<%5s>' % messages[0].content }}", "{{ '<{:>5}>'.format(messages[0].content) }}",
        "{{ messages[0].content.partition('x')|join }}", "{{ messages[0].content|e }}",
        "{{ messages[0].content.center(9, '-') }}",
        "{{ messages[0].content|truncate(2, true, '', 0) }}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ messages[0].content "
        "}}{% endcall %}"}) {
    ASSERT_OK_AND_ASSIGN(const Template t, Template::Parse(text));
    Template::Inputs in;
    in.messages = said;
    ASSERT_OK_AND_ASSIGN(const jinja::Text out, t.Render(in));
    std::string kept;
    ASSERT_EQ(out.said.size(), out.bytes.size()) << text;
    for (size_t i = 0; i < out.size(); ++i) {
      if (out.said[i] != 0) kept += out.bytes[i];
    }
    EXPECT_THAT((std::vector<std::string>{"<x>", "&lt;x&gt;", "<x"}), ::testing::Contains(kept))
        << text;
  }
}

// A loop that calls itself, and macros that outlive what they saw, are bounded as all else is.
TEST(JinjaLanguage, NothingIsUnboundedSlow) {
  EXPECT_THAT(Written("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("nest too deep"));
  EXPECT_EQ(Written("{% set n = namespace(f=none) %}{% for i in range(3) %}{% macro f() %}{{ i }}"
                    "{% endmacro %}{% set n.f = f %}{% endfor %}{{ n.f() }}"),
            "2")
      << "a macro sees the loop that it was made in";
  EXPECT_THAT(Written("{% for i in range(90000) %}{% for j in range(90000) %}{% macro f() %}"
                      "{% endmacro %}{% endfor %}{% endfor %}"),
              HasSubstr("too m"));
  const char* const kLargest =
      "{{ 'abc'|truncate(1000000000, leeway=9223372036854775807) }}"
      "{{ 'abc'|truncate(9223372036854775807) }}"
      "{{ 'abc'.ljust(-9223372036854775807 - 1) }}";
  EXPECT_EQ(Written(kLargest), "abcabcabc");
  EXPECT_THAT(Written("{% macro m() %}{{ varargs|length }}{% endmacro %}{% set r = range(100000) %}"
                      "{% for i in range(1000) %}{{ m(*r) }}{% endfor %}"),
              HasSubstr("too m"));
  EXPECT_THAT(Written("{{ ('%10000s' * 100000)|format(*range(100000)) }}"), HasSubstr("too m"));
}

TEST(JinjaLanguage, NumbersOfMessagesAreAsTheyWereWritten) {
  EXPECT_EQ(Written("{{ tools|tojson }} {{ tools[0] + 1 > tools[0] - 1e9 }}",
                    "[12345678901234567890, -123456789012345678901, 1E400, 1.50, 7]"),
            "[12345678901234567890, -123456789012345678901, Infinity, 1.5, 7] True");
}

// Counting what there is copies nothing.
TEST(JinjaLanguage, LongConversations) {
  const std::vector<Message> many(10'000, {"user", "U"});
  ASSERT_OK_AND_ASSIGN(
      const Template t,
      Template::Parse(
          "{% for m in messages %}{% if loop.index0 == messages|length - 1 and "
          "m in messages and messages|first == m %}{{ m.content }}{% endif %}{% endfor %}"));
  Template::Inputs in;
  in.messages = many;
  ASSERT_OK_AND_ASSIGN(const jinja::Text out, t.Render(in));
  EXPECT_EQ(out.bytes, "U");
}

}  // namespace
}  // namespace tessera::llm
