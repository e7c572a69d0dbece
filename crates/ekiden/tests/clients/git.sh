# git clone over HTTP, through the HTTP listener and through SOCKS5.
export HOME=$work GIT_CONFIG_NOSYSTEM=1
git -c init.defaultBranch=main init -q origin
for i in $(seq 20); do
  head -c 50000 /dev/urandom > origin/file$i
  git -C origin add . && git -C origin -c user.name=t -c user.email=t@example.org commit -qm "$i"
done
git clone -q --bare origin served/project.git
git -C served/project.git update-server-info
serve
git -c http.proxy=http://p1:3128 clone -q http://server:8080/project.git one
git -c http.proxy=socks5h://p1:1080 clone -q http://server:8080/project.git two
for clone in one two; do
  [ "$(git -C $clone rev-parse HEAD)" = "$(git -C origin rev-parse HEAD)" ]
  git -C $clone fsck --strict 2>/dev/null
done
