# etcd, an overlay in it and node delhi, as docs/guide/overlay.md says. Runs in a network namespace and a folder of its own; $EKIDEN is the program,
# $CERTIFICATES, $SERVE, $USERS, $ADMIT and $FULL are the guide's commands in their order, $NODE its configuration.
ip link set lo up
ip address add 192.0.2.10/32 dev lo; ip address add 192.0.2.77/32 dev lo
mount -t tmpfs none /var/lib
ekiden() { "$EKIDEN" "$@"; }
own=$(ekiden keygen delhi.key | grep -o 'sha256:[0-9a-f]*')
eval "$CERTIFICATES" 2> openssl.log
(eval "exec $SERVE" > etcd.log 2>&1) &
await 30 curl -fs --cacert etcd-ca.pem https://192.0.2.10:2379/health
eval "$USERS" > said
id=$(grep -x '[0-9a-f]\{64\}' said) || fail "no id: $(cat said)"
# The example's fingerprint stands for the node's.
eval "$(sed "s/sha256:\(de1d\)*/$own/" <<< "$ADMIT")" > said
grep -q "admitted delhi to blue, near .example.in 10.8.0.0/16, region asia; with a user of etcd, ekiden.blue.delhi" said || fail "$(cat said)"
grep -q "^delhi  sha256:[0-9a-f]*  near .example.in 10.8.0.0/16, region asia$" said || fail "$(cat said)"

sed "s/^id = .*/id = \"$id\"/" <<< "$NODE" > delhi.toml
(exec "$EKIDEN" proxy -c delhi.toml > ready 2>> delhi.log) &
is_member() { ekiden overlay nodes --json | grep -q '"name": "delhi"' && ! ekiden overlay status | grep -q NOSPACE; }
await 20 is_member
registered() { etcdctl --user root:$(cat root.password) get /ekiden/blue/nodes/delhi | grep -q 192.0.2.77; }
await 20 registered

# The doctor finds all that is well, and what is not.
code=0; ekiden doctor --wide -c delhi.toml --rate 1Mbit/s > found 2> said || code=$?
grep -q "^good .* etcd at https://192.0.2.10:2379: etcd 3.* changes$" found || fail "$code, $(cat found said)"
! grep -q "FAILS\|this node is near" found || fail "$code, $(cat found)"
! grep -q "this node is near" delhi.log || fail "$(cat delhi.log)"
grep -v '^allow' delhi.toml > shut.toml
ekiden doctor --wide -c shut.toml > found 2> said || code=$?
grep -q "this node is near 10.8.0.0/16, and does not connect to a private address unless" found || fail "$code, $(cat found)"
ekiden overlay expel blue delhi $operator > /dev/null
code=0; ekiden doctor --wide -c delhi.toml > found 2> said || code=$?
[ $code = 5 ] && grep -A 1 "FAILS  etcd at https://192.0.2.10:2379" found | grep -q "the name or the password is wrong" || fail "$code, $(cat found said)"
# Admitted again, with the password that it has.
ekiden overlay admit blue delhi $fingerprint $operator --node-password-file etcd.password > /dev/null
await 30 registered

# A large record is not taken, a full etcd is named, and the guide's commands free it.
(set +o pipefail; head -c 100000 /dev/zero | tr '\0' x | etcdctl --user root:$(cat root.password) put /ekiden/blue/nodes/delhi > /dev/null 2> said) && fail "a record of 100 KB"
grep -q "request is too large" said || fail "$(cat said)"
unset ETCDCTL_API ETCDCTL_ENDPOINTS ETCDCTL_CACERT
eval "$FULL" > said 2>&1 || fail "$(cat said)"
unset ETCDCTL_USER
registered || fail "delhi is no member any more"
