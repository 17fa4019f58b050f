#!/usr/bin/env python3
"""Writes chats.json: what transformers writes by chat templates.

    pip install transformers jinja2
    make_chats.py > chats.json            # of the templates below
    make_chats.py FOLDER > other.json     # of every *.jinja in a folder, for CHAT_GOLDENS=other.json

A golden has a template, its conversations by their numbers in the file's list, and of each the text or
null where the template refuses. A test renders the same.
"""
import datetime
import glob
import json
import sys

from transformers.utils import chat_template_utils


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 2, 1)


chat_template_utils.datetime = Day

U = ("user", "U")
CONVERSATIONS = [
    [U],
    [("system", "S"), U],
    [U, ("assistant", "A"), ("user", "V"), ("assistant", "B"), ("user", "W")],
    [("system", " S \n"), ("user", "\n U "), ("assistant", "\n A "), ("user", " V\n")],
    [("system", "S"), ("user", "U é"), ("assistant", "<think>\nx\n</think>\n\nA"), ("user", "V"),
     ("assistant", "A <b> 'q' \"r\""), ("user", "V {{x}} {% y %}")],
]

# With functions that may be called, calls and their results.
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Of a place, \"now\" & <soon>: é\n.",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "Where"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": None},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "exact": {"type": "boolean"}}, "required": ["place"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Sums.", "parameters": {"type": "object", "properties": {
            "of": {"type": "array", "items": {"type": "number"}}}, "required": []}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "abcdefgh1", "function": {
    "name": "weather", "arguments": {"place": "Z'ü \"x\"", "days": 2, "exact": True, "f": 1.5}}}]}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "abcdefgh1", "content": "{\"t\": 3}"}
WITH_TOOLS = [
    {"tools": TOOLS, "messages": [{"role": "user", "content": "U"}]},
    {"tools": TOOLS[1:], "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                                      CALL, RESULT]},
    {"tools": TOOLS, "messages": [
        {"role": "user", "content": "U"}, CALL, RESULT, {"role": "assistant", "content": "A"},
        {"role": "user", "content": "V"}]},
    {"tools": None, "messages": [
        {"role": "user", "content": "U"}, {**CALL, "content": "I call.", "tool_calls": [
            CALL["tool_calls"][0], {"type": "function", "id": "abcdefgh2", "function": {
                "name": "add", "arguments": {"of": [1, 2.5, -3e20, []]}}}]},
        RESULT, {**RESULT, "name": "add", "tool_call_id": "abcdefgh2", "content": "5"}]},
]

# Expressions, each in a template of its own with the first conversation. Those that fail here must fail
# there.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
{'é': 'a😀"\n'} | tojson(ensure_ascii=True) ~ 'é' | tojson(true) ~ 'é' | tojson(false, 2)
7 // 2 ~ ' ' ~ (-7) // 2 ~ ' ' ~ 7 % 3 ~ ' ' ~ (-7) % 3 ~ ' ' ~ 7 % -3
7 / 2 ~ ' ' ~ 8 / 2 ~ ' ' ~ 1.5 + 1 ~ ' ' ~ 0.1 + 0.2 ~ ' ' ~ 1e3 ~ ' ' ~ 1e16 ~ ' ' ~ 1e-5 ~ ' ' ~ 123456789.5
2 ** 10 ~ ' ' ~ 2 ** 0.5
-3 + -(2)
'a' 'b' "c"
'a\n\t\\\'\"\x41\u00e9\101\q|'
"it's" ~ 'a "b"'
'ab' * 3
[1, 'a', 2.0, none, true, [false], {'k': 'v'}]
(1, 2)[0]
['it\'s', "q\"", 'a\\b', 'é', '\n']
{'a': 1, 'b': {'c': [1, 2]}, 'a': 3}
{'a': 1}.a ~ {'a': 1}['a'] ~ {'a': 1}.get('a') ~ {'a': 1}.get('b') ~ {'a': 1}.get('b', 5)
{'a': 1}.b ~ '|' ~ {'a': 1}['b'] ~ '|' ~ x
x.y
x + 'a'
none + 'a'
'a' + 1
1 / 0
1 // 0
1 < 2 < 3 ~ ''
1 < 2 and 3 > 2 and not 1 > 2
1 == 1.0 ~ ' ' ~ (true == 1) ~ ' ' ~ ('a' == 'a') ~ ' ' ~ ([1, 2] == [1, 2]) ~ ' ' ~ ({'a': 1} == {'a': 1}) ~ ' ' ~ (none == false)
'a' < 'b' and 'B' < 'a'
'a' < 1
'b' in 'abc' ~ ''
('b' in 'abc') ~ (1 in [1, 2]) ~ ('k' in {'k': 1}) ~ (3 not in [1]) ~ ('x' in x)
1 in 'abc'
1 in 5
'' or 'b'
'a' and ''
0 or none
'a' if true else 'b'
'a' if false
('a' if false) ~ '|'
'a' if false else 'b' if false else 'c'
not true or true
not 'a' in 'abc'
'abcdef'[1] ~ 'abcdef'[-1] ~ 'abcdef'[1:3] ~ 'abcdef'[:-2] ~ 'abcdef'[-3:] ~ 'abcdef'[::-1] ~ 'abcdef'[::2] ~ 'abcdef'[4:1:-1] ~ 'abcdef'[10:]
'aéïx'[1:3] ~ 'aéïx'|length ~ 'aéïx'[::-1] ~ 'aéïx'.find('x')
[1, 2, 3, 4][1:] ~ [1, 2, 3][-2] ~ [1, 2, 3][::-1] ~ [1, 2, 3][5:]
[1, 2][9] ~ '|'
messages[0].role ~ messages[0]['content'] ~ messages[-1].content ~ messages|length
messages[0]
messages[0].name is defined
messages[0].content.x is defined
x is defined ~ ''
(x is defined) ~ (x is undefined) ~ (none is none) ~ (none is defined) ~ (tools is defined) ~ (tools is none)
('a' is string) ~ (1 is number) ~ (1 is integer) ~ (1.0 is float) ~ (true is boolean) ~ (true is number) ~ (true is integer)
({} is mapping) ~ ([] is mapping) ~ ([] is sequence) ~ ('a' is sequence) ~ ({} is sequence) ~ ([] is iterable) ~ (1 is iterable) ~ (none is iterable) ~ (x is iterable)
(1 is odd) ~ (1 is even) ~ (6 is divisibleby 3) ~ (6 is divisibleby(4)) ~ (1 is sameas 1) ~ (1 is sameas true) ~ (true is sameas true)
(true is true) ~ (1 is true) ~ (false is false) ~ ('A' is upper) ~ ('a' is lower) ~ ('' is lower)
(1 is eq 1) ~ (1 is equalto 2) ~ (2 is gt 1) ~ (2 is lt(1)) ~ (1 is in [1]) ~ (range is callable) ~ (1 is not none)
1 is nosuch
1|nosuch
'a'.nosuch()
nosuch('a')
'  a b '.strip() ~ '|' ~ '  a '.lstrip() ~ '|' ~ '  a '.rstrip() ~ '|' ~ ' a '|trim ~ '|'
'xxaxx'.strip('x') ~ '|' ~ 'abcab'.strip('ba') ~ '|' ~ '\n\na\n'.lstrip('\n') ~ '|' ~ 'xay'|trim('x') ~ '|'
'a,b,,c'.split(',') ~ 'a,b,c'.split(',', 1) ~ 'a,b,c'.rsplit(',', 1) ~ ' a  b\n'.split() ~ ''.split(',') ~ ''.split()
'a</t>b</t>c'.split('</t>')[-1] ~ 'abc'.split('x')[0]
'a'.split('')
'a\nb\n\nc\n'.splitlines()
'abc'.startswith('ab') ~ 'abc'.endswith('bc') ~ 'abc'.startswith(('x', 'a')) ~ 'abc'.endswith('')
'abcabc'.replace('b', 'X') ~ 'abcabc'.replace('b', '', 1) ~ ('abcabc'|replace('c', '-')) ~ ('abcabc'|replace('c', '-', 1))
'abcabc'.find('c') ~ 'abcabc'.rfind('c') ~ 'abc'.find('x') ~ 'abcabc'.count('bc')
'abc def'.upper() ~ 'ABC'.lower() ~ 'aBC dEF'.capitalize() ~ 'aBC dEF'.title() ~ ('aBC dEF'|capitalize) ~ ('aBC dEF'|title) ~ ('a'|upper) ~ ('A'|lower)
'-'.join(['a', 'b']) ~ (['a', 1, none]|join(', ')) ~ ([]|join) ~ ([{'a': 'x'}, {'a': 'y'}]|join('+', attribute='a')) ~ ('abc'|join('.'))
'a{}b{}'.format(1, 'x') ~ '{0}{1}{0}'.format('a', 'b') ~ '{k}{{}}'.format(k='v')
'{}'.format()
'prefix-a'.removeprefix('prefix-') ~ 'a.txt'.removesuffix('.txt') ~ 'a'.removeprefix('x')
'12'.isdigit() ~ '1a'.isdigit() ~ ''.isdigit()
'a\nb\n\nc'|indent ~ '|' ~ 'a\nb'|indent(2, true) ~ '|' ~ 'a\n\nb'|indent(width=1, blank=true)
'abc'|length ~ [1]|count ~ {'a': 1}|length ~ x|length
1|length
none|length
[3, 1, 2]|sort ~ ['b', 'A', 'c']|sort ~ ['b', 'A']|sort(case_sensitive=true) ~ [1, 2]|sort(reverse=true) ~ [{'k': 2}, {'k': 1}]|sort(attribute='k')
[1, 'a']|sort
{'b': 1, 'a': 2}|dictsort|map('join', '=')|list ~ {'b': 1, 'a': 2}|dictsort(by='value')|map('last')|list ~ {'b': 1, 'A': 2}|dictsort(reverse=true)|map('first')|list ~ {'b': 1, 'A': 2}|dictsort(true)|map('first')|list
{'b': 1, 'a': 2}|items|map('join', '=')|list ~ {'b': 1, 'a': 2}.items()|map('first')|list ~ {'b': 1}.keys()|list ~ {'b': 1}.values()|list ~ {'b': 1, 'a': 2}|list
[1, 1, 2, 1]|unique|list ~ [1, 2, 3]|first ~ [1, 2, 3]|last ~ 'abc'|first ~ [1, 2, 3]|reverse|list ~ 'abc'|reverse ~ [1, 3, 2]|max ~ [2, 1]|min
messages|map(attribute='role')|list ~ ['a', 'b']|map('upper')|list ~ [{'a': {'b': 1}}, {}]|map(attribute='a', default=7)|list
[1, 2, 3, 4]|select('odd')|list ~ [1, 2, 3]|reject('gt', 1)|list ~ [0, 1, '']|select|list
[{'t': 'x', 'v': 1}, {'t': 'y'}, {}]|selectattr('t')|list ~ [{'t': 'x', 'v': 1}, {'t': 'y'}]|selectattr('t', 'equalto', 'x')|map(attribute='v')|first ~ [{'t': 'x'}, {}]|rejectattr('t', 'defined')|list
none|selectattr('a')|list
x|default('d') ~ none|default('d') ~ ''|default('d') ~ ''|default('d', true) ~ x|d('e') ~ x|default ~ 0|default(1, boolean=true)
'5'|int + 1 ~ ' ' ~ 'x'|int ~ '2.9'|int ~ 'x'|int(7) ~ '1.5'|float ~ 3|float ~ 2.9|int ~ true|int
-5|abs ~ (-5)|abs ~ (-2.5)|abs ~ 5|string ~ [1]|string|length ~ 'a'|safe ~ 'abc'|list
{'a': [1, 2.5, none, true, 'é"\n\\/<>&\u0001'], 'b': {}, 'c': []}|tojson
{'a': [1, {'b': 2}], 'c': {}}|tojson(indent=2)
'it\'s'|tojson ~ none|tojson ~ messages|tojson
x|tojson
range(3)|list ~ range(1, 4)|list ~ range(5, 0, -2)|list ~ range(0)|list
range(1, 2, 0)|list
strftime_now('%d %b %Y %A')
raise_exception('no')
dict(a=1, b='x')
namespace(a=1).a
bos_token ~ eos_token ~ add_generation_prompt ~ tools ~ documents
true ~ false ~ none ~ True ~ False ~ None
loop
'a' ~ 1 ~ none ~ [] ~ {}
[[1, 2], [3]]|map('length')|list
[1, 2] + [3]
{'a': 1}|length == 1 and 'x' or 'y'
(1 if x is defined else 2) + 1
messages[0]['content']|trim|upper ~ messages[0].content[0]
'a' is string and 'b' is not none
[1,
 2,]
{'a': 1,}
{
}
'a'[
{{
1 +
(1
[1}
'abc
1 2
a b
""".strip("\n").split("\n")

# Whole templates: white space, scopes, loops, macros; and what models' templates are like.
TEMPLATES = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {% endif %}  \n c",
    "a \n {%- if true -%} \n b {%- endif -%} \n c",
    "a {%+ if true +%}\nb{% endif +%}\nc",
    "  {% set x = 1 %}\n  {{ x }}\n  {# note #}\n{{- x -}}\n d {#- n -#} e\n\n",
    "{{ '{{' }} { % } {a} {{ {'a': {'b': 1}}.a.b }}{{ {'a': 1}}}",
    "{%- for m in messages %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem.role }}{{ loop.nextitem.role }};"
    "{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}"
    "{% for m in messages if m.role == 'tool' %}x{% else %}no tools{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}"
    "{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for (a, b) in [[1, 2], (3, 4)] %}{{ a + b }}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i > 4 %}{% break %}{% else %}{{ i }}{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(n=0, seen=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.seen = ns.seen + [m.role] %}{% set ns.new = m.content %}{% endfor %}{{ ns.n }}{{ ns.seen }}{{ ns.new }}",
    "{% if x %}a{% elif messages|length > 2 %}b{% elif messages|length > 1 %}c{% else %}d{% endif %}{% if true %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% macro f(a, b='x', c=none) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=1) }}{{ f() }}{{ f('a')|upper }}{{ f(1)|trim|length }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ y }}{% endmacro %}{% set y = 2 %}{% for y in [3] %}{{ f() }}{% endfor %}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% set a, b = [1, 2] %}{{ b }}{{ a }}{% set t = 1, 2 %}{{ t[1] }}",
    "{% set x %}a {{ 1 }}\n b{% endset %}[{{ x }}]{% set y | upper | trim %} q {% endset %}[{{ y }}]",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}",
    "{% generation %}a{% endgeneration %}",
    "{% set messages = messages[1:] if messages[0].role == 'system' else messages %}{{ messages|length }}",
    "{% set x = {'a': 1} %}{% set x.a = 2 %}",
    "{% if %}{% endif %}", "{% for %}", "{% nosuch %}", "{% if true %}", "{% endif %}", "{{ a", "{% set %}", "{# a",
    "{% break %}", "{% if true %}{% else %}{% else %}{% endif %}", "{% for a in x %}{% endif %}",
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}"
    "{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles do not alternate') }}{% endif %}{% if loop.index0 == 0 and system != false %}"
    "{% set content = '((' + system + '))' + m['content'] %}{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '<u>' + content.strip() + '</u>' }}{% elif m['role'] == 'assistant' %}"
    "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    """{%- set ns = namespace(last=-1, in_answer=false) %}
{%- for m in messages %}
    {%- if m.role == "user" %}
        {%- set ns.last = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if messages[0].role == 'system' %}
    {{- '<|s|>' + messages[0].content|trim + '<|e|>\\n' }}
{%- else %}
    {{- '<|s|>On ' + strftime_now('%Y-%m-%d') + '<|e|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.content is string %}
        {%- set content = m.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if m.role == "user" or (m.role == "system" and not loop.first) %}
        {{- '<|' + m.role + '|>' + content + '<|e|>' + '\\n' }}
    {%- elif m.role == "assistant" %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is defined and m.reasoning_content is not none %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought %}
            {{- '<|a|><think>' + thought + '</think>' + content }}
        {%- else %}
            {{- '<|a|>' + content }}
        {%- endif %}
        {{- '<|e|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|a|>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think></think>' }}
    {%- endif %}
{%- endif %}
""",
    """{%- macro shown(content) -%}
    {%- if content is string -%}
        {{ content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
[{{ m['role'] | upper }}]
{{ shown(m.content) | trim }}
{{ '</s>' if m.role == 'assistant' and not loop.last }}
{%- endfor %}
{% if add_generation_prompt %}[ASSISTANT]
{% endif %}
""",
]

TOOL_TEMPLATES = [
    """{%- if tools %}
    {{- '<|s|>' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|e|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|s|>' + messages[0].content + '<|e|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {{- '<|u|>' + m.content + '<|e|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|a|>' + m.content }}
        {%- for call in m.tool_calls or [] %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<call>{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|e|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{ '<|u|>' }}{% endif %}
        {{- '\\n<result>' + m.content + '</result>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|e|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|a|>' }}{% endif %}
""",
    """{%- for tool in tools or [] %}
{%- set f = tool.function %}
{{ f['name'] }}(
{%- for name, p in f.parameters.properties.items() -%}
{{ name }}: {{ p.type }}{{ '' if name in f.parameters.required else '?' }}
{%- if p.enum is defined %} of {{ p.enum | join('|') }}{% endif %}
{%- if p.default is defined %} = {{ p.default }}{% endif %}
{%- if not loop.last %}, {% endif %}
{%- endfor %}): {{ f.description | tojson }}
{%- endfor %}
{%- for m in messages %}
{{ m | tojson }}
{%- if m['tool_calls'] is defined %}
{%- for call in m['tool_calls'] %}
{%- for k, v in call['function']['arguments'] | items %}
{{ loop.index }} {{ k }}={{ v }} {{ v | tojson(indent=2) }}
{%- endfor %}
{%- endfor %}
{%- endif %}
{%- endfor %}
{{ tools }}
""",
]


def Rendered(template, conversation):
    tools = None
    if isinstance(conversation, dict):
        messages, tools = conversation["messages"], conversation["tools"]
    else:
        messages = [dict(role=r, content=c) for r, c in conversation]
    try:
        return chat_template_utils.render_jinja_template(
            [messages], tools=tools, chat_template=template, add_generation_prompt=True, bos_token="<BOS>",
            eos_token="<EOS>")[0][0]
    except Exception:  # whatever a template does
        return None


def Main():
    conversations = CONVERSATIONS + WITH_TOOLS
    if len(sys.argv) > 1:
        paths = sorted(glob.glob(sys.argv[1] + "/*.jinja"))
        templates = [open(p, encoding="utf8", newline="").read() for p in paths]
        each = [(t, range(len(conversations))) for t in templates]
    else:
        each = [("{{ " + e + " }}", [0]) for e in EXPRESSIONS]
        each += [(t, range(len(CONVERSATIONS))) for t in TEMPLATES]
        each += [(t, range(len(conversations))) for t in TOOL_TEMPLATES]
    goldens = [{"template": t, "texts": [Rendered(t, conversations[i]) for i in numbers]}
               for t, numbers in each]
    print(json.dumps({"conversations": conversations})[:-1] + ', "goldens": [')
    print(",\n".join(json.dumps(g) for g in goldens) + "]}")


Main()
