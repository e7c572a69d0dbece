# ftp URLs through the HTTP listener and FTP clients in passive mode through SOCKS, with two servers: pyftpdlib, and Twisted, which
# knows neither EPSV nor REST. $DOCS is the documentation's example.
echo "$(getent hosts server | cut -d' ' -f1) ftp.example.org" >> /etc/hosts
mkdir served/folder && cp served/file served/folder/inside
head -c 50000000 /dev/urandom > served/large
# Debian keeps both for its own Python.
start() { (exec ip netns exec server /usr/bin/python3 -m pyftpdlib -d served "$@" >/dev/null 2>&1) & last=$!; }
start -p 21; killed=$last
start -p 2222 -u alice -P 'se cret'
(exec ip netns exec server /usr/bin/python3 -m twisted ftp -p 2121 -r served >/dev/null 2>&1) &
await 20 listens server 21; await 20 listens server 2121; await 20 listens server 2222
http() { curl -sSf --proxy http://p1:3128 "$@"; }
# The arguments fetch a file of the server, and write it.
same() { local name=$1; shift; "$@" > got; cmp "served/$name" got; }
# The status of what is refused.
is() { local code=$1; shift; [ "$(curl -s --proxy http://p1:3128 -o told -w '%{http_code}' "$@")" = "$code" ]; }
export ftp_proxy=http://p1:3128

for server in server server:2121; do
  for name in file large folder/inside; do
    same $name http ftp://$server/$name
    same $name curl -sSf --proxy socks5h://p1:1080 ftp://$server/$name
    same $name wget -qO - ftp://$server/$name
  done
  # Two on one connection.
  http "ftp://$server/{file,folder/inside}" -o 'got#1' --create-dirs
  cmp served/file gotfile; cmp served/file gotfolder/inside
  http -I ftp://$server/file > head
  grep -q '^Content-Length: 3000000' head; grep -q '^Last-Modified: ' head
  for directory in ftp://$server/folder/ ftp://$server//folder/; do http $directory > list; grep -q inside list; done
  http ftp://$server/ > list; grep -q large list
  is 404 ftp://$server/none; grep -q "RETR: 550 " told
  is 404 ftp://$server/none/
  is 401 ftp://alice:wrong@$server/file
done
is 502 ftp://server:9/file
is 405 -T served/file ftp://server/new; [ ! -e served/new ]
# A path that holds a second command is refused before anything is asked.
is 400 ftp://server/file%0d%0aDELE%20file; [ -e served/file ]
# A user's password in the URL, and as curl and wget send it; a wrong one.
same file http 'ftp://alice:se%20cret@server:2222/file'
same file http --user 'alice:se cret' ftp://server:2222/file
same file wget -qO - --user=alice --password='se cret' ftp://server:2222/file
is 401 --user alice:wrong ftp://server:2222/file
# What was broken off goes on where it was.
head -c 1000000 served/file > rest
http -C - ftp://server/file -o rest
cmp served/file rest
# As the documentation has it, but for the proxy's address.
mkdir served/pub docs
cp served/file served/pub/file.tar.gz
(cd docs; bash -euc "${DOCS//127.0.0.1/p1}") > told
cmp served/file docs/file.tar.gz; grep -q file.tar.gz told
# A server that dies in the middle leaves no file that looks whole.
http --limit-rate 4M ftp://server/large -o part 2> why & client=$!
until [ "$(stat -c %s part 2>/dev/null || echo 0)" -gt 1000000 ]; do sleep 0.05; done
kill -9 $killed
if wait $client; then echo "a clean end" >&2; exit 1; fi
[ "$(stat -c %s part)" -lt 50000000 ]
