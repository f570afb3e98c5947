"""Fleet files that never end or never stop growing, and files that they name: bases and house rules."""

from __future__ import annotations

import json
from typing import Any

from tests.hostile.case import BASE, Case, fleet_text
from tests.hostile.kinds import kind
from tests.hostile.objects import FILE, LINK, Entry

LIMIT = 8 << 20
"""The largest fleet file that is read."""
HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: prod}\nspec:\n"
HOSTILE_TEXTS = [
    "::error::owned", "##[error]owned", "::set-output name=plan_id::owned", "##vso[task.setvariable]x", "\x1b[2J",
    "\x1b]0;owned\x07", "\u202eevil", "a\r::error::owned", "a\n::error::owned", "<!--fleetctl:plan:other-->", "\x9b31m",
    "</details><script>alert(1)</script>", "![x](http://127.1/x)", "@everyone", "::stop-commands::x",
    "\ufeff::error::x", "\u2028::error::x", "${{secrets.GITHUB_TOKEN}}", "$(touch owned)", "x" * 5000, "'; DROP",
    "\U000e0001x", "|||", "```"]


@kind("fleet")
def aliases_that_unfold(case: Case) -> None:
    levels = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 40))
    case.replace_fleet(case.rng.choice([f"a0: &a0 [x]\n{levels}",
                                        f"{HEAD}  x: &a0 [x]\n  models:\n  - key: m\n    labels:\n"
                                        + "".join(f"      {line}\n" for line in levels.splitlines())]))


@kind("fleet")
def merge_keys_that_unfold(case: Case) -> None:
    wide = "a0: &a0 {" + ", ".join(f"k{number}: 1" for number in range(2000)) + "}\n"
    levels = "".join(f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 200)}]\n" for level in range(1, 60))
    case.replace_fleet(wide + levels)


@kind("fleet")
def a_chain_of_merge_keys(case: Case) -> None:
    levels = "".join(f"a{level}: &a{level} {{<<: *a{level - 1}, k{level}: 1}}\n" for level in range(1, 3000))
    case.replace_fleet(f"a0: &a0 {{k: 1}}\n{levels}")


@kind("fleet")
def an_alias_to_itself(case: Case) -> None:
    case.replace_fleet(case.rng.choice(["&a [*a]\n", "&a {x: *a, <<: *a}\n", f"{HEAD}  models: &m\n  - *m\n",
                                        f"{HEAD}  defaults: &d {{<<: *d}}\n  models: []\n"]))


@kind("fleet")
def nesting(case: Case) -> None:
    case.replace_fleet(case.rng.choice(["[" * 200_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000,
                                        "!!set {" * 50_000, "".join(" " * level + "a:\n" for level in range(3_000)),
                                        "&a [" * 50_000]))


@kind("fleet")
def a_million_documents(case: Case) -> None:
    case.replace_fleet(case.rng.choice(["---\n", "--- x\n", "---\n...\n", f"---\n{HEAD}"]) * case.rng.choice(
        [case.many(1_000_000), 1000]))


@kind("fleet")
def a_million_problems(case: Case) -> None:
    models = HEAD + "  models:\n"
    begin, line = case.rng.choice([
        (models, "  - kez: x\n"), (models, "  - {}\n"), (models, "  - &a%d {key: m, replicas: x}\n"),
        (HEAD, "  modls%d: 1\n"),
        (HEAD + "  models: [", "x, "), ("", "a: 1\n"), ("", "k%d: [\n"), ("", "x"), ("", "#"), ("", "\n"), ("", "\t"),
        ("'", "''"), ("", "? x\n"), ('"', "\\x41")])
    number = case.many(LIMIT) // (len(line) + 5 * ("%" in line))
    rows = "".join(line % one for one in range(number)) if "%" in line else line * number
    case.replace_fleet((begin + rows)[:LIMIT])


@kind("fleet")
def a_hundred_thousand_models(case: Case) -> None:
    one = "  - {key: m/%d, replicas: %d, workers: [{name: main, members: [{engine: {command: [x]}}]}]}\n"
    rows, size = [HEAD + "  models:\n"], 0
    for number in range(case.many(100_000)):
        row = one % (number, case.rng.randint(0, 3))
        size += len(row)
        if size > LIMIT - 1000:
            break
        rows.append(row)
    case.replace_fleet("".join(rows[:case.rng.choice([1_000, 20_000, len(rows)])]))


@kind("fleet")
def numbers_without_end(case: Case) -> None:
    numbers = ["9" * 7_000_000, "1e999999999", "0x" + "f" * 5_000_000, "1" + ":59" * 100_000, ".inf", ".nan", "-0",
               "1e-400", "9" * 4299, "0o" + "7" * 9_000, "1_" * 9_000 + "1", "!!int " + "9" * 10_000,
               "9999999999999999999", "0b1" + "0" * 9999, "!!float " + "9" * 100_000, "1e400"]
    quantities = ["9" * 5000 + "Gi", "1e99999999Gi", "1e-99999999", "0." + "0" * 100_000 + "1", "9" * 100_000,
                  "1" * 4000 + "Ei", "1e4299", "-1Gi", "NaN"]
    number, quantity = case.rng.choice(numbers), case.rng.choice(quantities)
    case.replace_fleet(
        f"{HEAD}  models:\n  - key: m/one\n    replicas: {number}\n    startupTimeout: {case.rng.choice(quantities)}s\n"
        f"    workers: [{{name: main, members: [{{resources: {{gpus: {quantity}, vram: {quantity}}}, engine: "
        "{command: [x]}}]}]\n")


@kind("fleet")
def text_that_is_none(case: Case) -> None:
    text = fleet_text(BASE)
    case.replace_fleet(case.rng.choice([
        text.encode("utf-16"), text.encode("utf-16-le"), text.encode("utf-32"), b"\0" * 1000, b"\xff\xfe" * 1000,
        b"\xef\xbb\xbf" * 9, b"\xed\xa0\x80", text.replace("\n", "\r").encode(), text.replace("\n", "\u2028").encode(),
        b"a: \x1b[2J\n", b"\x80" * LIMIT, b"x" * (LIMIT + 1), b"%YAML 9.9\n---\n" + text.encode(),
        b"%TAG ! tag:x:\n--- !y\n" + text.encode(), b"", b"\x85" * 10_000, b"GIF89a" + bytes(range(256)) * 99]))


@kind("fleet")
def tags_that_make_objects(case: Case) -> None:
    command = case.marker("yaml tag")
    case.replace_fleet("\n".join([
        f"a: !!python/object/apply:os.system [{command!r}]", f"b: !!python/object/new:os.system [{command!r}]",
        f"c: !!python/object/apply:subprocess.Popen [[{command!r}]]", "d: !!python/name:os.system",
        "e: !<tag:yaml.org,2002:js> x", "f: !!binary /////", "g: !!timestamp 99999-99-99", "h: !!omap [a: 1]",
        "i: !!python/module:antigravity", ""]))


@kind("fleet")
def text_that_a_terminal_or_a_runner_obeys(case: Case) -> None:
    texts = case.rng.sample(HOSTILE_TEXTS, 4)
    name, key, value, word = map(json.dumps, texts)
    case.replace_fleet(
        f"{HEAD}  models:\n  - key: {key}\n    replicas: 2\n    labels: {{{name}: {value}}}\n    workers:\n"
        "    - name: main\n      members:\n"
        f"      - nodeSelector: {{x: {word}}}\n        engine: {{command: [{key}], args: [{word}, {name}], "
        f"env: {{A: {value}, {name}: {word}}}}}\n  - {{key: {word}, replicas: 1, {name}: 1}}\n  {value}: 1\n")


@kind("fleet")
def one_hostile_text_in_a_good_fleet(case: Case) -> None:
    key = case.rng.choice([text for text in HOSTILE_TEXTS if text.isprintable() and " " not in text and len(text) < 99])
    case.head = {**(case.head or BASE), key: 1}
    case.write_head()


@kind("fleet")
def shapes_that_unfold(case: Case) -> None:
    group = "{name: g%d, members: [{engine: {command: [%s]}}]}"
    shape = ", ".join(group % (number, ", ".join(["x"] * 100)) for number in range(200))
    rows = "".join(f"  - {{key: m/{number}, replicas: 0, shape: s}}\n" for number in range(case.many(20_000)))
    case.replace_fleet(f"{HEAD}  shapes: {{s: {{workers: [{shape}]}}}}\n  models:\n{rows}")


@kind("fleet")
def numbers_that_are_fine_and_huge(case: Case) -> None:
    """A valid fleet that no cluster has room for, or one with claims so small that each replica is in the plan."""
    claim = case.rng.choice(["gpus: 1", "gpus: 0.0001", "cpus: 0.001", "gpus: 1, vram: 1Gi"])
    most = 10_000 if "0.0" in claim else 100_000
    case.replace_fleet(fleet_text({"m/one": case.rng.choice([most // 10, most, 1_000_000]), "m/two": most}).replace(
        "gpus: 1", claim))


@kind("rules")
def a_base_outside_the_checkout(case: Case) -> None:
    named = case.rng.choice([
        "../../outside/neighbor.yaml", str(case.folder / "outside/neighbor.yaml"), "/proc/self/environ",
        "../.git/config", "/dev/stdin", case.canary.url + "/base.yaml", f"file://{case.folder}/outside/neighbor.yaml",
        "../linked/neighbor.yaml", "../latest.yaml", "../.git/HEAD", "../README.md", "..", "", "\x1b[2J", "prod.yaml",
        "../../../../../../../../proc/self/environ", "../rules/../../outside/neighbor.yaml", "~/.gitconfig",
        "$HOME/.gitconfig", f"ext::{case.marker('extends')}", "../fleets/\u202ex"])
    case.files["linked"] = Entry(LINK, b"../outside")
    case.files["latest.yaml"] = Entry(LINK, b"../outside/neighbor.yaml")
    case.write_head(head=f"extends: {json.dumps(named)}\n")
    case.head = None


@kind("rules")
def rules_outside_the_checkout(case: Case) -> None:
    named = case.rng.choice([
        "../../outside/neighbor.yaml", "/proc/self/environ", "../.git/config", case.canary.url + "/rules.json",
        "/dev/zero", "../linked", "../linked/neighbor.yaml", "../.git/index", "/dev/stdin",
        f"file://{case.folder}/outside/neighbor.yaml"])
    case.files["linked"] = Entry(LINK, b"../outside")
    case.write_head(spec=f"policy: {{schemas: [{json.dumps(named)}]}}\n")
    case.head = None


@kind("rules")
def bases_without_end(case: Case) -> None:
    which = case.rng.randrange(4)
    base = "apiVersion: fleetctl/v1\nkind: Fleet\n"
    if which == 0:  # each of a hundred as large as it may be
        filler = "".join(f"  - {{key: m/{number}, replicas: 0}}\n" for number in range(case.many(60_000)))
        big = f"{base}spec:\n  models:\n{filler}"[:LIMIT].rpartition("\n")[0] + "\n"
        case.files |= {f"bases/b{number}.yaml": Entry(FILE, f"{big}# {number}\n".encode()) for number in range(12)}
        names = [f"../bases/b{number}.yaml" for number in range(12)]
    elif which == 1:
        case.files |= {f"bases/b{number}.yaml": Entry(FILE, f"{base}extends: b{number + 1}.yaml\nspec: {{}}\n".encode())
                       for number in range(200)}
        names = ["../bases/b0.yaml"]
    elif which == 2:
        for number in range(24):
            later = json.dumps([f"b{inner}.yaml" for inner in range(number + 1, 24)])
            case.files[f"bases/b{number}.yaml"] = Entry(FILE, f"{base}extends: {later}\nspec: {{}}\n".encode())
        names = ["../bases/b0.yaml"]
    else:
        case.files |= {"bases/a.yaml": Entry(FILE, f"{base}extends: b.yaml\nspec: {{}}\n".encode()),
                       "bases/b.yaml": Entry(LINK, b"a.yaml")}
        names = ["../bases/a.yaml"] * 10_000
    case.write_head(head=f"extends: {json.dumps(names)}\n")
    case.head = None


def _rules(case: Case, schema: Any, name: str = "house", text: str | None = None) -> None:
    """Let the change's fleet name a schema."""
    data = (json.dumps(schema) if text is None else text).encode()
    case.files[f"rules/{name}.json"] = Entry(FILE, data)
    case.write_head(spec=f"policy: {{schemas: [../rules/{name}.json]}}\n")
    case.head = None


def _with_model(case: Case, key: str) -> None:
    case.head = {**(case.head or BASE), key: 1}


ENDLESS = r"^([a-z]+)+$"


@kind("rules", slow=True)
def a_pattern_that_never_ends(case: Case) -> None:
    _with_model(case, "a" * 40 + "-0")
    pattern = case.rng.choice([ENDLESS, r"^(a|a)*$", r"(a*)*b$", r"^(\w+\s?)*$", r"^(([a-z])+.)+[A-Z]$", r"(?=(a+)+$)"])
    _rules(case,
        {"properties": {"spec": {"properties": {"models": {"items": {"properties": {"key": {"pattern": pattern}}}}}}}})


@kind("rules", slow=True)
def a_pattern_of_keys_that_never_ends(case: Case) -> None:
    text = case.text(spec="policy: {schemas: [../rules/house.json]}\n").replace(
        "replicas: ", f"labels: {{{'a' * 60}-0: x}}, replicas: ".replace(", replicas", "\n    replicas"))
    schema = case.rng.choice([{"patternProperties": {ENDLESS: False}}, {"propertyNames": {"pattern": ENDLESS}},
                              {"patternProperties": {ENDLESS: True}, "additionalProperties": False},
                              {"patternProperties": {ENDLESS: True}, "unevaluatedProperties": False}])
    case.files["rules/house.json"] = Entry(FILE,
        json.dumps({"properties": {"spec": {"properties": {"models": {"items": {
        "properties": {"labels": schema}}}}}}}).encode())
    case.replace_fleet(text)


@kind("rules", slow=True)
def nested_rules_that_double(case: Case) -> None:
    word = case.rng.choice(["allOf", "anyOf", "oneOf"])
    rules: dict[str, Any] = {"a0": {"type": case.rng.choice(["object", "array"])}}
    for level in range(1, 41):
        rules[f"a{level}"] = {word: [{"$ref": f"#/$defs/a{level - 1}"}, {"$ref": f"#/$defs/a{level - 1}"}]}
    _rules(case, {"$defs": rules, "$ref": "#/$defs/a40"})


@kind("rules", slow=True)
def rules_in_circles(case: Case) -> None:
    _rules(case, case.rng.choice([
        {"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$dynamicAnchor": "x", "$dynamicRef": "#x"}, {"allOf": [{"$dynamicRef": "#"}, {"$ref": "#"}]},
        {"properties": {"spec": {"$ref": "#"}}, "unevaluatedProperties": {"$ref": "#"}}, {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}, "then": {"$ref": "#"}}]))


@kind("rules")
def rules_that_refer_to_other_places(case: Case) -> None:
    place = case.rng.choice([case.canary.url + "/s.json", f"file://{case.folder}/outside/neighbor.yaml",
                             "/proc/self/environ", "neighbor.yaml", "house.json", "//127.1/x", case.canary.git_url,
                             "http://[::1", "data:,{}", "urn:x"])
    _rules(case, case.rng.choice([
        {"$ref": place}, {"$dynamicRef": place}, {"$id": case.canary.url + "/x/", "$ref": "s.json"}, {"$schema": place},
        {"$id": place, "$ref": "#/x"}, {"properties": {"x": {"$ref": place}}}, {"$vocabulary": {place: True}},
        {"$defs": {"x": {"$schema": place, "$id": place}}, "$ref": place + "#/a"}, {"$recursiveRef": place}]))


@kind("rules", slow=True)
def rules_about_large_lists(case: Case) -> None:
    rows = ", ".join(f"[{number}, {{}}]" for number in range(20_000))
    fleet = case.text(spec="policy: {schemas: [../rules/house.json]}\n")
    one = case.rng.choice([{"uniqueItems": True}, {"contains": {"const": 1}, "minContains": 2},
                           {"items": {"enum": [[number] for number in range(3000)]}}, {"prefixItems": [{}] * 50_000}])
    case.files["rules/house.json"] = Entry(FILE, json.dumps({"properties": {"spec": {"properties": {"models": {
        "items": {"properties": {"labels": {"additionalProperties": one}}}}}}}}).encode())
    case.replace_fleet(fleet.replace("replicas: ", f"labels: {{a: [{rows}]}}\n    replicas: ", 1))


@kind("rules")
def rules_that_are_huge(case: Case) -> None:
    which = case.rng.randrange(7)
    if which == 0:
        _rules(case, {"enum": list(range(1_000_000))})
    elif which == 1:
        _rules(case, {"description": "x\x1b[2J::error::" * 500_000, "type": "array"})
    elif which == 2:
        _rules(case, None, text='{"not":' * 100_000 + "{}" + "}" * 100_000)
    elif which == 3:
        _rules(case, None, text='{"maximum": ' + "9" * 7_000_000 + "}")
    elif which == 4:
        _rules(case, {"allOf": [{"type": "array", "description": f"rule {number}"} for number in range(60_000)]})
    elif which == 5:
        _rules(case, {"properties": {f"p{number}": {"type": "string"} for number in range(150_000)}})
    else:
        _rules(case, None, text='{"a": 1, ' * 3 + " " * (20 << 20) + "}")


@kind("rules")
def many_files_of_rules(case: Case) -> None:
    rule = {"properties": {f"p{number}": {"pattern": "x" * 50} for number in range(20_000)}}
    case.files["rules/house.json"] = Entry(FILE, json.dumps(rule).encode())
    names = ["../rules/house.json"] * case.rng.choice([30, 5_000])
    case.write_head(spec=f"policy: {{schemas: {json.dumps(names)}}}\n")
    case.head = None


@kind("rules")
def rules_that_are_odd(case: Case) -> None:
    _rules(case, case.rng.choice([
        {"pattern": "("}, {"pattern": "(" * 5000 + ")" * 5000}, {"pattern": "a{99999999999}"},
        {"pattern": "(?P<a>" * 200 + "x" + ")" * 200}, {"multipleOf": 1e-300}, {"multipleOf": 0}, {"minimum": "x"},
        {"type": "x"}, {"type": []}, {"required": "x"}, {"format": "regex"},
        {"properties": {"spec": {"properties": {"models": {"items": {"properties": {
            "replicas": {"multipleOf": 1e-320}}}}}}}}, {"enum": []}, True, False, [], "x",
        {"additionalProperties": False, "description": "\x1b[2J\n::error::owned\r##[error]x\u202e"},
        {"dependentSchemas": {"spec": False}}, {"properties": {"spec": False}}, {"$anchor": "\x1b"}, {"$id": "#"},
        {"$id": "\x1b[2J"}, {"$defs": 1}, {"properties": []}, {"contentSchema": {"$ref": "http://127.1/x"},
        "contentMediaType": "application/json"},
        {"minLength": -1}, {"maxItems": 1e400}]))


@kind("rules")
def weights_that_lead_elsewhere(case: Case) -> None:
    """A member's weights name an index file and sources."""
    named = case.rng.choice(["../../outside/neighbor.yaml", "/proc/self/environ", "../.git/config",
                             case.canary.url + "/index.json", "../linked/neighbor.yaml", "/dev/zero"])
    case.files["linked"] = Entry(LINK, b"../outside")
    text = case.text().replace(
        "engine: {", f"weights: {{index: {json.dumps(named)}, from: [{json.dumps(case.canary.url)}]}}, engine: {{", 1)
    case.replace_fleet(text)

