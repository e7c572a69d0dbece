# One program: $COMMAND with $FILE, to which $CHANGE can be added; `ekiden status --json` lists it among $AMONG.
tell() { cat said ready; }
mount --make-rprivate /
mount -t tmpfs none /sys/fs/bpf
ip link set lo up
ip link add wan0 type veth peer name far0
ip link set wan0 up
"$EKIDEN" keygen node.key > /dev/null
PRINT=$("$EKIDEN" keygen other.key | grep -o 'sha256:[0-9a-f]*')
printf '%s' "${FILE//\$PRINT/$PRINT}" > right.toml

# The configuration is checked and shown, and what is shown is the same configuration.
if [ "$COMMAND" != "measure server" ]; then
  "$EKIDEN" $COMMAND -c right.toml --check > checked
  grep -q "right.toml: ok" checked || fail "$(cat checked)"
  "$EKIDEN" $COMMAND -c right.toml --show-config > shown.toml
  "$EKIDEN" $COMMAND -c shown.toml --show-config | diff shown.toml - || fail "what is shown is read as another one"
fi
# Every key that is shown is in the schema, and among the keys.
cat > known.py <<'P'
import json, sys, tomllib
schema, keys = json.load(open("schema.json")), open("keys").read()
def check(value, schema, place):
    assert schema is not None, f"{place} is not in the schema"
    if isinstance(value, dict) and schema.get("type") == "object":
        for key, inner in value.items():
            assert place.count(".") > 0 or "NAME" in keys or key in keys
            check(inner, schema["properties"].get(key) if "properties" in schema else schema["additionalProperties"], f"{place}.{key}")
    elif isinstance(value, list):
        [check(inner, schema["items"], place) for inner in value if "items" in schema]
for file in sys.argv[1:]:
    check(tomllib.load(open(file, "rb")), schema, file)
P
if [ "$COMMAND" != "measure server" ]; then
  "$EKIDEN" $COMMAND --schema > schema.json
  "$EKIDEN" $COMMAND --keys > keys
  python3 known.py right.toml shown.toml
fi
printf 'no_such_key = 1\n' | cat - right.toml > wrong.toml
code=0; "$EKIDEN" $COMMAND -c wrong.toml > said 2>&1 || code=$?
[ $code = 3 ] && grep -q "wrong.toml:1: .*no_such_key" said || fail "$code"

# It starts, and SIGHUP does not end it.
cp right.toml file.toml
(exec "$EKIDEN" $COMMAND -c file.toml > ready 2> said) & program=$!
await 20 grep -q "^ready$" ready
hang_up() { local lines=$(grep -c "configuration" said || true); kill -HUP $program; await 10 told $lines; }
told() { [ "$(grep -c "configuration\|next start" said)" -gt $1 ]; }
cp wrong.toml file.toml; hang_up
grep -q "ERROR.*the configuration stays as it was: file.toml:1: .*no_such_key" said || fail "a wrong file"
kill -0 $program || fail "a wrong file has ended it"
cp right.toml file.toml; hang_up
grep -q "INFO.*the configuration was read again from file.toml" said || fail "the same file"
printf '%s' "$CHANGE" >> file.toml; hang_up
grep -q "read again from file.toml$\|next start" said || fail "a changed file"
# It is asked: all programs say the same of their processes.
"$EKIDEN" status > shown
grep -q "process $program, for [0-9]* s, ekiden $("$EKIDEN" --version | cut -d' ' -f2)$" shown || fail "$(cat shown)"
"$EKIDEN" status --json > shown.json
python3 - "$AMONG" $program shown.json <<'P'
import json, sys
among, pid, file = sys.argv[1:]
(one,) = json.load(open(file))[among]
assert one["pid"] == int(pid) and one["running_s"] < 600 and one["version"].count(".") == 2, one
P
# One that is stopped does not hide another.
printf 'name = "other"\n[listen.socks]\nkind = "socks5"\naddress = "127.0.0.1:1081"\n' > other.toml
(exec "$EKIDEN" proxy -c other.toml > other-ready 2> other-said) & other=$!
await 20 grep -q "^ready$" other-ready
kill -STOP $program
code=0; "$EKIDEN" status > shown 2> silent || code=$?
kill -CONT $program; kill $other; wait $other
[ $code = 1 ] && grep -q "^node other: " shown && grep -q "gives no answer" silent || fail "$code: $(cat shown silent)"
# A SIGHUP while a process waits for what another one has is no end, and is heeded once it has it.
cp right.toml file.toml
(exec "$EKIDEN" $COMMAND -c file.toml > next-ready 2> next-said) & next=$!
await 4 grep -q "waited for" next-said
printf '%s' "$CHANGE" >> file.toml
kill -HUP $next
kill $program; code=0; wait $program || code=$?
[ $code = 0 ] && grep -q "told to end by SIGTERM" said || fail "it ended with $code: $(cat said)"
next_told() { cat next-said next-ready; }
await 20 grep -q "^ready$" next-ready || fail "$(next_told)"
await 10 grep -q "read again from file.toml$\|next start" next-said || fail "$(next_told)"
kill $next; code=0; wait $next || code=$?
[ $code = 0 ] || fail "the next one ended with $code"
