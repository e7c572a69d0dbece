# From 35 s on the leg between b and c carries a twentieth.
settle "a → b → c"
while [ $SECONDS -lt 33 ]; do fetch 3 data || true; done
goes "a → b → c" || fail "streams go $(path) before anything has changed"
while [ $SECONDS -lt 35 ]; do sleep 0.1; done
begun=$SECONDS
until goes "a → d → c"; do
  fetch 2 data || true
  [ $((SECONDS - begun)) -lt 30 ] || fail "streams still go $(path)"
done
echo "left after $((SECONDS - begun)) s"
fetch 30 data && cmp data got || fail "the file did not arrive whole"
