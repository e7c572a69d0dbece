# OpenSSH with a SOCKS5 ProxyCommand: a command with input and output, and scp both ways.
mount -t tmpfs none "$HOME" && chmod 700 "$HOME" && mkdir -m 700 "$HOME/.ssh"
ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id"
cp "$HOME/.ssh/id.pub" "$HOME/.ssh/authorized_keys" && chmod 600 "$HOME/.ssh/authorized_keys"
dropbearkey -t ed25519 -f hostkey >/dev/null 2>&1
on server dropbear -F -E -s -r "$work/hostkey" -p 2222 2>dropbear.log &
await 20 listens server 2222
cat > config <<C
Host server
  Port 2222
  User $(id -un)
  IdentityFile $HOME/.ssh/id
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ProxyCommand nc -X 5 -x p1:1080 %h %p
C
ssh -F config server cat < served/file > echoed
cmp served/file echoed
scp -q -O -F config served/file "server:$work/up"
scp -q -O -F config "server:$work/up" down
cmp served/file up; cmp served/file down
if ssh -F config server exit 7; then exit 1; else [ $? = 7 ]; fi
