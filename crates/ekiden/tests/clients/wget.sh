# wget through the HTTP listener: three files over one kept connection.
head -c 100000 /dev/urandom > served/second; : > served/empty
serve
http_proxy=http://p1:3128 wget -q http://server:8080/file http://server:8080/second http://server:8080/empty
cmp served/file file; cmp served/second second; cmp served/empty empty
