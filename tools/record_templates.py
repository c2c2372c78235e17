#!/usr/bin/env python3
"""Records what Python's jinja2, set up as Hugging Face transformers does it, makes of chat templates.

Writes into tests/golden/templates, which src/formats/template_test.c compares with:

    renderings.json    every *.jinja there, rendered for every conversation
    expressions.json   the small templates of expressions.txt, rendered for one set of variables

Needs jinja2 3.1.6 or later. Usage: python3 tools/record_templates.py [FOLDER]
"""
import copy
import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW_S = 1735221909
NOW = datetime.datetime.fromtimestamp(NOW_S, datetime.timezone.utc).replace(tzinfo=None)


class Raised(jinja2.exceptions.TemplateError):
    """What raise_exception throws: told apart from jinja2's own errors."""


class Generation(Extension):
    """{% generation %} without the tracking of token ranges: the text is the body's."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_text")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _text(self, context, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def make_env():
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(format):
        return NOW.strftime(format)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict())
    return env


def render(env, source, variables):
    """{"out": text}, or what went wrong: {"raise": message} of raise_exception, {"undefined":
    message}, {"error": any other exception}."""
    try:
        return {"out": env.from_string(source).render(**copy.deepcopy(variables))}
    except Raised as e:
        return {"raise": str(e.message)}
    except jinja2.exceptions.UndefinedError as e:
        return {"undefined": str(e.message)}
    except Exception as e:  # any of Python's: skein must fail too
        return {"error": f"{type(e).__name__}: {e}"}


# ---- conversations ----------------------------------------------------------------------------

SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
USER = {"role": "user", "content": "What is 2 + 2?"}
ANSWER = {"role": "assistant", "content": "It is 4."}
AGAIN = {"role": "user", "content": "  And 3 * 3?\n"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city, \"now\" or later.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "array", "items": {"type": "integer"}},
                "where": {"type": "object", "description": "Coordinates", "properties": {
                    "lat": {"type": "number"}, "lon": {"type": "number", "default": 1.5}}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tell the time.",
        "parameters": {"type": "object", "properties": {}},
        "return": {"type": "string", "description": "ISO time"},
    },
}


def call(name, arguments, id="abc123def"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_talk(arguments):
    return [
        {"role": "user", "content": "Weather in Tromsø?"},
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather", arguments)]},
        {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather",
         "content": "{\"temp\": -3.5, \"sky\": \"clear\"}"},
    ]


CITY = {"city": "Tromsø", "days": [1, 2], "unit": None, "where": {"lat": 69.6, "lon": True}}
THOUGHT = {"role": "assistant", "content": "It is 4.", "reasoning_content": "2 + 2\nmakes 4",
           "thinking": "2 + 2\nmakes 4"}
TAGGED = {"role": "assistant", "content": "<think>\nhm, 2 + 2\n</think>\n\nIt is 4."}
PARTS = [{"type": "text", "text": "Look at "}, {"type": "text", "text": "this."}]
IMAGE = [{"type": "image", "image": "x.png"}, {"type": "text", "text": "What is it?"}]

CONVERSATIONS = {
    "user": dict(messages=[USER]),
    "user_no_prompt": dict(messages=[USER], add_generation_prompt=False),
    "system_user": dict(messages=[SYSTEM, USER]),
    "empty_system": dict(messages=[{"role": "system", "content": ""}, USER]),
    "developer": dict(messages=[{"role": "developer", "content": "Be brief."}, USER]),
    "turns": dict(messages=[SYSTEM, USER, ANSWER, AGAIN]),
    "turns_no_system": dict(messages=[USER, ANSWER, AGAIN, ANSWER, USER]),
    "finished": dict(messages=[SYSTEM, USER, ANSWER], add_generation_prompt=False),
    "unicode": dict(messages=[{"role": "user", "content": "héllo 世界 🦩 e\u0301 \u200b<b>&amp;\t\"q\" '"},
                              {"role": "assistant", "content": "\u00a0ｆｕｌｌ\u2028 ß"},
                              {"role": "user", "content": "\U0001f468\u200d\U0001f469\u200d\U0001f467 ÅÅ"}]),
    "markup_text": dict(messages=[{"role": "user", "content": "{{ x }} {% if %} <|im_end|> [INST]"}]),
    "tools": dict(messages=[SYSTEM, USER], tools=[WEATHER, CLOCK]),
    "tools_no_system": dict(messages=[USER], tools=[WEATHER]),
    "tool_result": dict(messages=tool_talk(CITY), tools=[WEATHER, CLOCK]),
    "tool_result_text_args": dict(messages=tool_talk(json.dumps(CITY)), tools=[WEATHER]),
    "tool_done": dict(messages=[SYSTEM] + tool_talk(CITY) + [
        {"role": "assistant", "content": "Clear, -3.5 degrees."}, AGAIN], tools=[WEATHER]),
    "tool_two": dict(messages=[USER, {"role": "assistant", "content": None, "tool_calls": [
        call("get_weather", {"city": "Oslo"}, "aaaaaaaaa"), call("clock", {}, "bbbbbbbbb")]},
        {"role": "tool", "tool_call_id": "aaaaaaaaa", "name": "get_weather", "content": "rain"},
        {"role": "tool", "tool_call_id": "bbbbbbbbb", "name": "clock", "content": "12:00"}],
        tools=[WEATHER, CLOCK]),
    "reasoning": dict(messages=[SYSTEM, USER, THOUGHT, AGAIN]),
    "reasoning_last": dict(messages=[USER, THOUGHT], add_generation_prompt=False),
    "tagged": dict(messages=[USER, TAGGED, AGAIN]),
    "tagged_last": dict(messages=[USER, TAGGED], add_generation_prompt=False),
    "think_off": dict(messages=[SYSTEM, USER], enable_thinking=False, thinking=False,
                      reasoning_effort="low"),
    "think_on": dict(messages=[SYSTEM, USER], enable_thinking=True, thinking=True,
                     reasoning_effort="high"),
    "think_tools": dict(messages=[USER, dict(THOUGHT, tool_calls=[call("clock", {})]),
                                  {"role": "tool", "name": "clock", "content": "12:00",
                                   "tool_call_id": "abc123def"}],
                        tools=[CLOCK], enable_thinking=True),
    "parts": dict(messages=[{"role": "system", "content": PARTS}, {"role": "user", "content": PARTS},
                            {"role": "assistant", "content": PARTS}, {"role": "user", "content": PARTS}]),
    "image": dict(messages=[{"role": "user", "content": IMAGE}]),
    "no_content": dict(messages=[USER, {"role": "assistant"}, AGAIN]),
    "two_users": dict(messages=[USER, AGAIN, ANSWER, ANSWER]),
    "late_system": dict(messages=[USER, SYSTEM, USER]),
    "assistant_first": dict(messages=[ANSWER, USER]),
    "odd_role": dict(messages=[USER, {"role": "critic", "content": "No."}]),
    "nothing": dict(messages=[]),
    "documents": dict(messages=[USER], documents=[
        {"title": "A", "text": "First text.", "doc_id": "1"}, {"title": "B", "text": "Second."}]),
}
DEFAULTS = dict(add_generation_prompt=True, tools=None, documents=None, bos_token="<s>",
                eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def conversation(name):
    return {**DEFAULTS, **CONVERSATIONS[name]}


# ---- expressions ------------------------------------------------------------------------------

VARIABLES = {
    "s": "Hello, World", "e": "", "u": "Straße ΑΣ 世界 🦩 é", "ml": "one\n\n  two\r\nthree\u2028x",
    "n": 7, "neg": -3, "z": 0, "f": 2.5, "t": True, "no": False, "nil": None,
    "l": [3, 1, 2], "el": [], "m": [1, "a", None, 2.5, True, [1], {"k": "v"}],
    "w": ["pear", "Apple", "fig", "apple", "Fig"], "d": {"b": 1, "a": [1, 2], "c": {"x": "y"}},
    "ed": {}, "html": "<p class=\"x\">a & 'b'</p>",
    "users": [{"name": "Bo", "age": 30, "tag": {"id": 2}}, {"name": "al", "age": 25, "tag": {"id": 1}},
              {"name": "Cy", "age": 30}],
    "shadow": {"items": "mine", "get": 1, "x": 2},
}


def read_expressions(path):
    """One template a line, \\n for newlines; empty lines and those that begin with ## are skipped."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("##"):
            yield line.replace("\\n", "\n")


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n",
                    encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/templates")
    env = make_env()
    renderings = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode("utf-8")
        renderings[path.stem] = {c: render(env, source, conversation(c)) for c in CONVERSATIONS}
    write(folder / "renderings.json", {
        "now": NOW_S, "conversations": {c: conversation(c) for c in CONVERSATIONS},
        "templates": renderings})
    expressions = [[x, render(env, x, VARIABLES)]
                   for x in read_expressions(folder / "expressions.txt")]
    write(folder / "expressions.json", {"now": NOW_S, "variables": VARIABLES, "cases": expressions})
    print(f"{len(renderings)} templates x {len(CONVERSATIONS)} conversations, "
          f"{len(expressions)} expressions")


if __name__ == "__main__":
    main()
