# The examples of docs/guide/programs.md ($DOCS), each with a server that is as they have it.
mount -t tmpfs none "$HOME" && chmod 700 "$HOME" && mkdir -m 700 "$HOME/.ssh"
ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"
cp "$HOME/.ssh/id_ed25519.pub" "$HOME/.ssh/authorized_keys" && chmod 600 "$HOME/.ssh/authorized_keys"
printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' > "$HOME/.ssh/config"
cp served/file "$HOME/file"
dropbearkey -t ed25519 -f hostkey >/dev/null 2>&1
on server dropbear -F -E -s -r "$work/hostkey" -p 22 2>dropbear.log &
printf '[files]\npath = %s\nread only = yes\nuse chroot = no\n' "$work/served" > rsyncd.conf
on server rsync --daemon --no-detach --port 873 --config "$work/rsyncd.conf" --log-file "$work/rsync.log" &
git -c init.defaultBranch=main init -q origin
cp served/file origin/file
git -C origin add . && git -C origin -c user.name=t -c user.email=t@example.org commit -qm one
git clone -q --bare origin served/project.git
git -C served/project.git update-server-info
serve; await 20 listens server 22; await 20 listens server 873
# Nobody but the node knows the way: the names and addresses of the guide are those of this network.
docs=${DOCS//127.0.0.1/p1}
docs=${docs//server.example/server}
eval "$docs"
for got in by-curl by-wget by-ssh by-scp by-rsync by-rsync-ssh project/file; do cmp served/file $got; done
